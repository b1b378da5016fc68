package promql

import "testing"

func TestIsByLabel(t *testing.T) {
	for expr, want := range map[string]bool{
		`freeze`:                                                  true,
		`max by (cluster) (freeze) == bool 0`:                     true,
		`max by (cluster, node) (freeze offset 5m)`:               true,
		`sum without (node) (free)`:                               true,
		`sum by (cluster) (a) / on (cluster) group_left (zone) b`: true,
		`a / ignoring (node) b`:                                   true,
		`-(a and b)`:                                              true,
		`a unless on (cluster) b`:                                 true,
		`max_over_time(sum by (cluster) (a)[5m:1m])`:              true,
		`topk by (cluster) (1, a)`:                                true,
		`time() - max by (cluster) (a)`:                           true,
		`label_replace(a, "zone", "$1", "node", "(.*)-.*")`:       true,
		`sum(free)`:                                            false,
		`sum by (node) (free)`:                                 false,
		`sum without (cluster) (free)`:                         false,
		`topk(1, a)`:                                           false,
		`a unless on () (freeze == 1)`:                         false,
		`a / ignoring (cluster) group_left b`:                  false,
		`a / on () group_left sum by (cluster) (b)`:            false,
		`a * on (node) group_left (cluster) b`:                 false,
		`a < bool scalar(sum(b))`:                              false,
		`absent(freeze{cluster="a"})`:                          false,
		`label_replace(a, "cluster", "$1", "node", "(.*)-.*")`: false,
		`label_join(a, "cluster", "-", "site", "number")`:      false,
		`max by (cluster) (a * on () group_left sum(b))`:       false,
		`sum by (cluster) (`:                                   false,
		`quantile by (cluster) (scalar(sum(b)), a)`:            false,
		`a * on (cluster, node) group_left (model) max by (cluster, node, model) (b{x!="y"})`: true,
	} {
		if got := IsByLabel(expr, "cluster"); got != want {
			t.Errorf("%s: %v, want %v", expr, got, want)
		}
	}
}
