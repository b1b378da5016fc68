//go:build integration

package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/onsi/gomega"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"sigs.k8s.io/yaml"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/cli/backtest"
	"plimsoll.dev/plimsoll/operator/internal/cli/command"
	"plimsoll.dev/plimsoll/operator/internal/cli/prometheus"
	"plimsoll.dev/plimsoll/operator/internal/metrics/clustermap"
	"plimsoll.dev/plimsoll/operator/internal/scoring/round"
	"plimsoll.dev/plimsoll/operator/internal/scoring/score"
)

var programs = map[string]string{}

// labProgram returns the path of a program of the lab.
func labProgram(t *testing.T, name string) string {
	t.Helper()
	if path := programs[name]; path != "" {
		return path
	}
	cmd := exec.Command("go", "run", "./test/lab", "path", name)
	cmd.Dir = "../../.."
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("find %s: %v", name, err)
	}
	programs[name] = strings.TrimSpace(string(out))
	return programs[name]
}

// startWithHistory starts a Prometheus with the metrics of the two days before now:
//   - c1 has 48 of 64 devices free on the first day and 8 on the second.
//   - c2 always has 32 free devices, with a gap of three hours.
//   - a third of the samples of c3 is stale.
func startWithHistory(t *testing.T, flags ...string) (url string) {
	t.Helper()
	dir := t.TempDir()
	var text strings.Builder
	text.WriteString("# TYPE free gauge\n")
	write := func(metric, cluster string, value func(minute int) (float64, bool)) {
		for m := range 2*24*60 + 1 {
			if v, ok := value(m); ok {
				fmt.Fprintf(&text, "%s{cluster=%q} %v %d\n", metric, cluster, v, now.Add(time.Duration(m-2*24*60)*time.Minute).Unix())
			}
		}
	}
	write("free", "c1", func(m int) (float64, bool) { return map[bool]float64{true: 48, false: 8}[m < 24*60], true })
	write("free", "c2", func(m int) (float64, bool) { return 32, m < 30*60 || m > 33*60 })
	write("free", "c3", func(m int) (float64, bool) { return float64(m % 30), true })
	text.WriteString("# TYPE age gauge\n")
	for _, cluster := range []string{"c1", "c2"} {
		write("age", cluster, func(int) (float64, bool) { return 10, true })
	}
	write("age", "c3", func(m int) (float64, bool) { return map[bool]float64{true: 500, false: 10}[m%60 < 20], true })
	text.WriteString("# EOF\n")
	file := filepath.Join(dir, "history.om")
	if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	data := filepath.Join(dir, "data")
	if out, err := exec.Command(labProgram(t, "promtool"), "tsdb", "create-blocks-from", "openmetrics", "--quiet", file, data).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return startPrometheus(t, append(flags, "--storage.tsdb.path="+data, "--storage.tsdb.retention.time=100y")...)
}

// startPrometheus starts a Prometheus without scrape targets.
func startPrometheus(t *testing.T, flags ...string) (url string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	_ = listener.Close()
	config := filepath.Join(t.TempDir(), "prometheus.yml")
	if err := os.WriteFile(config, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(labProgram(t, "prometheus"), append(flags, "--log.level=warn", "--config.file="+config, "--web.listen-address="+address)...)
	var log bytes.Buffer
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Log(log.String())
		}
	})
	url = "http://" + address
	gomega.NewWithT(t).Eventually(func() (int, error) {
		resp, err := http.Get(url + "/-/ready")
		if err != nil {
			return 0, err
		}
		return resp.StatusCode, resp.Body.Close()
	}, time.Minute, 100*time.Millisecond).Should(gomega.Equal(http.StatusOK))
	return url
}

const historyPolicy = `
apiVersion: plimsoll.dev/v1alpha1
kind: ScoringPolicy
metadata: {name: history}
spec:
  sourceRef: {name: prometheus}
  periodSeconds: 15
  minHealthyPercent: 0
  freshness: {query: age, maxAgeSeconds: 60}
  scores:
  - name: headroom
    query: sum by (cluster) (free)
    normalize: {type: Linear, linear: {from: "0", to: "64"}}
    damping: {halfLifeSeconds: 30, deadband: 3}
    missing: {keepLastSeconds: 600}
`

// runBacktest runs backtest on a policy.
func runBacktest(t *testing.T, policy, url string, args ...string) (out, errOut string, code int) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(file, []byte(policy), 0o600); err != nil {
		t.Fatal(err)
	}
	var o, e bytes.Buffer
	args = append([]string{"backtest", "-f", file, "--prometheus", url}, args...)
	code = run(context.Background(), args, genericclioptions.IOStreams{In: strings.NewReader(""), Out: &o, ErrOut: &e}, func() time.Time { return now })
	return o.String(), e.String(), code
}

const wantHistory = `Policy:     history
Rounds:     11521, one every 15s from 2026-02-27 12:00:00Z to 2026-03-01 12:00:00Z
Best:       by headroom: c1 52%, c2 44.2%, c3 3.8% of the time
Switches:   14 of the best cluster, 7 per day
Published:  556.5 changes per day

CLUSTER  SCORE     TREND                                       MIN   MEDIAN  MAX  KEPT   MISSING  BEST   CHANGES/DAY
c1       headroom  ▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▆▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂  13    57      75   0%     0%       52%    4
c2       headroom  ▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅···▅▅▅▅▅▅▅▅▅▅▅▅▅  -100  50      50   0.3%   5.8%     44.2%  1
c3       headroom  ▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃  -100  28      44   15.9%  17.4%    3.8%   551.5
`

func TestBacktestWithPrometheus(t *testing.T) {
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	url := startWithHistory(t)
	limited := startWithHistory(t, "--query.max-samples=2000")
	t.Run("table", func(t *testing.T) {
		out, errOut, code := runBacktest(t, historyPolicy, url, "--since", "2d")
		if code != exitOK || out != wantHistory {
			t.Errorf("%d %s\n%s", code, errOut, out)
		}
		// A server with a smaller limit of samples gets more queries, with the same result.
		again, errOut, code := runBacktest(t, historyPolicy, limited, "--since", "2d")
		if code != exitOK || again != out {
			t.Errorf("%d %s\n%s", code, errOut, again)
		}
	})
	t.Run("same rounds as instant queries", func(t *testing.T) { compareWithInstantQueries(t, url) })
	for name, tc := range map[string]struct {
		policy, url string
		args        []string
		code        int
		want        string
	}{
		"empty history":      {historyPolicy, startPrometheus(t, "--storage.tsdb.path="+t.TempDir()), nil, exitFailure, "no cluster has data between"},
		"bad query":          {strings.ReplaceAll(historyPolicy, "sum by (cluster) (free)", "free * on () age"), url, nil, exitFailure, "many-to-many"},
		"refused connection": {historyPolicy, "http://127.0.0.1:1", nil, exitFailure, "Unreachable: "},
		"too many points":    {historyPolicy, url, []string{"--since", "30d", "--step", "1s"}, exitUsage, "at most 100000 are allowed: set --step to 26s or more"},
		"too many samples":   {historyPolicy, limited, []string{"--since", "1h", "--step", "30s", "--clusters", "c1"}, exitOK, ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, errOut, code := runBacktest(t, tc.policy, tc.url, tc.args...)
			if code != tc.code || !strings.Contains(errOut, tc.want) {
				t.Errorf("%d, want %d with %q: %s", code, tc.code, tc.want, errOut)
			}
		})
	}
}

// compareWithInstantQueries runs rounds with instant queries, as the operator does, and
// compares their values with a backtest that is so short that its trend has one slice per
// round.
func compareWithInstantQueries(t *testing.T, url string) {
	policy := &v1alpha1.ScoringPolicy{}
	if err := yaml.UnmarshalStrict([]byte(strings.ReplaceAll(historyPolicy, "periodSeconds: 15", "periodSeconds: 300")), policy); err != nil {
		t.Fatal(err)
	}
	source, err := (&prometheus.Flags{URL: url}).Connect(t.Context(), &command.App{}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer source.Client.Close()
	out, errOut, code := runBacktest(t, historyPolicy, url, "--since", "195m", "--step", "5m", "-o", "json", "--clusters", "c1,c2,c3,c4")
	var report backtest.Report
	if err := json.Unmarshal([]byte(out), &report); code != exitOK || err != nil || report.Rounds != 40 {
		t.Fatalf("%d %v %s\n%s", code, err, errOut, out)
	}
	spec, compiled, err := round.Compile(&policy.Spec, "cluster")
	if err != nil {
		t.Fatal(err)
	}
	req := round.Request{
		Spec: spec, Policy: compiled, Querier: source.Client,
		Clusters: clustermap.FromNames(source.Info.ClusterLabel, []string{"c1", "c2", "c3", "c4"}),
	}
	for i := range report.Rounds {
		req.Now = report.From.Add(time.Duration(i) * 5 * time.Minute)
		req.Previous = round.Run(context.Background(), req).Result
		for c, cluster := range req.Clusters.Names() {
			cell, mean := req.Previous.Row(c)[0], report.Clusters[c].Scores[0].Trend[i]
			usable := cell.State == score.Scored || cell.State == score.Kept
			if usable != (mean != nil) || usable && float64(cell.Value) != *mean {
				t.Errorf("round %d of %s: an instant query gives %d %s, the backtest %v", i, cluster, cell.Value, cell.State, mean)
			}
		}
	}
}
