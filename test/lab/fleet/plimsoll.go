package fleet

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sort"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	"sigs.k8s.io/controller-runtime/pkg/client"

	plimsoll "plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

const operatorNamespace = "plimsoll-system"

// OperatorUser is the operator's user name on the hub.
const OperatorUser = "system:serviceaccount:" + operatorNamespace + ":plimsoll-operator"

// StartPlimsoll installs Plimsoll and runs all exporters and the operator.
func (f *Fleet) StartPlimsoll(ctx context.Context) error {
	if err := f.Install(ctx); err != nil {
		return err
	}
	if err := f.StartExporters(ctx); err != nil {
		return err
	}
	return f.StartOperator(ctx)
}

// AwaitScores waits up to two minutes until each worker has a total score of the sample
// policy that rests on metrics.
func (f *Fleet) AwaitScores(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	return Await(ctx, "a score of each cluster", func(ctx context.Context) error {
		for _, w := range f.Workers {
			scores, err := f.Scores(ctx, "fleet", w.Name)
			if err != nil {
				return err
			}
			if total, ok := scores["total"]; !ok || total < 0 {
				return fmt.Errorf("%s has the scores %v", w.Name, scores)
			}
		}
		return nil
	})
}

// Install applies Plimsoll's CRDs, roles, guard and samples with kubectl, and points the
// samples' MetricsSource to the lab's Thanos.
func (f *Fleet) Install(ctx context.Context) error {
	config := filepath.Join(f.opts.Root, "config")
	for _, folder := range []string{"crd", "rbac", "guard"} {
		if _, err := f.Hub.Kubectl(ctx, "", "apply", "--server-side", "-k", filepath.Join(config, folder)); err != nil {
			return err
		}
	}
	if _, err := f.Hub.Kubectl(ctx, "", "wait", "--for=condition=Established", "--timeout=60s", "crd", "--all"); err != nil {
		return err
	}
	for _, w := range f.Workers {
		if err := applySamples(ctx, w, config, "worker"); err != nil {
			return err
		}
	}
	if err := applySamples(ctx, f.Hub, config, "hub"); err != nil {
		return err
	}
	if _, err := f.Hub.Kubectl(ctx, explainerYAML, "apply", "--server-side", "-f", "-"); err != nil {
		return err
	}
	return f.SetSourceURL(ctx, f.Thanos)
}

// explainerYAML is an account that may read the operator's explanations. Administrators of the lab have no token.
const explainerYAML = `
apiVersion: v1
kind: ServiceAccount
metadata: {name: explainer, namespace: team-a}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: lab-explainer}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: plimsoll-explainer}
subjects: [{kind: ServiceAccount, name: explainer, namespace: team-a}]
`

// applySamples applies the samples for the role of a cluster, and those of the team. It takes
// over fields that a test or a user changed.
func applySamples(ctx context.Context, c *Cluster, config, role string) error {
	for _, folder := range []string{role, "team"} {
		if _, err := c.Kubectl(ctx, "", "apply", "--server-side", "--force-conflicts", "-k", filepath.Join(config, "samples", folder)); err != nil {
			return err
		}
	}
	return nil
}

// SetSourceURL sets the URL of the samples' MetricsSource.
func (f *Fleet) SetSourceURL(ctx context.Context, url string) error {
	source := &plimsoll.MetricsSource{}
	if err := f.Hub.Client.Get(ctx, client.ObjectKey{Name: "thanos"}, source); err != nil {
		return fmt.Errorf("the samples' MetricsSource: %w", err)
	}
	before := source.DeepCopy()
	source.Spec.URL = url
	return f.Hub.Client.Patch(ctx, source, client.MergeFrom(before))
}

// SetHold sets the time in seconds for which the samples' ScoringPolicy holds its scores. Nil
// stands for the default.
func (f *Fleet) SetHold(ctx context.Context, seconds *int32) error {
	policy := &plimsoll.ScoringPolicy{}
	if err := f.Hub.Client.Get(ctx, client.ObjectKey{Name: "fleet"}, policy); err != nil {
		return fmt.Errorf("the samples' ScoringPolicy: %w", err)
	}
	before := policy.DeepCopy()
	for i := range policy.Spec.Scores {
		policy.Spec.Scores[i].Missing.KeepLastSeconds = seconds
	}
	return f.Hub.Client.Patch(ctx, policy, client.MergeFrom(before))
}

// Operator is the name of the operator's program.
const Operator = "plimsoll-operator"

// StartOperator runs the operator with a token of its service account, so config/rbac and
// config/guard apply to it, and waits until it is ready.
func (f *Fleet) StartOperator(ctx context.Context, args ...string) error {
	return f.startOperator(ctx, Operator, f.bin.Path("plimsoll-operator"), f.OperatorMetrics, append([]string{"--leader-elect=false"}, args...))
}

// StopOperator ends the operator of StartOperator with SIGTERM.
func (f *Fleet) StopOperator() error { return f.procs.End(Operator, syscall.SIGTERM) }

// ReplaceOperator ends the operator and runs another build of it.
func (f *Fleet) ReplaceOperator(ctx context.Context, path string) error {
	if err := f.StopOperator(); err != nil {
		return err
	}
	return f.startOperator(ctx, Operator, path, f.OperatorMetrics, []string{"--leader-elect=false"})
}

// StartReplica runs a further operator with leader election.
func (f *Fleet) StartReplica(ctx context.Context, name string, args ...string) error {
	port, err := freePort()
	if err != nil {
		return err
	}
	return f.startOperator(ctx, name, f.bin.Path("plimsoll-operator"), fmt.Sprintf("127.0.0.1:%d", port), append([]string{"--leader-elect=true"}, args...))
}

// startOperator runs the operator with the plimsoll account. Its log has each decision, for tests that fail.
func (f *Fleet) startOperator(ctx context.Context, name, path, metrics string, args []string) error {
	return f.runOperator(ctx, name, path, metrics, client.ObjectKey{Namespace: operatorNamespace, Name: "plimsoll-operator"},
		append([]string{"--namespace=" + operatorNamespace, "--multikueue-dispatch=nominate", "--log-level=debug"}, args...))
}

// runOperator runs the operator with a token of the service account.
func (f *Fleet) runOperator(ctx context.Context, name, path, metrics string, account client.ObjectKey, args []string) error {
	kubeconfig, err := f.Hub.serviceAccountKubeconfig(ctx, name+".kubeconfig", account.Namespace, account.Name)
	if err != nil {
		return err
	}
	port, err := freePort()
	if err != nil {
		return err
	}
	probe := fmt.Sprintf("127.0.0.1:%d", port)
	return f.procs.Run(ctx, program{
		name: name, path: path,
		args: append(slices.Clone(args), "--kubeconfig="+kubeconfig, "--allow-loopback-sources",
			"--metrics-bind-address="+metrics, "--health-probe-bind-address="+probe),
		ready: httpReady("http://"+probe+"/readyz", httpPlain),
	})
}

// StartExporters runs an exporter for each GPU node of the clusters. Without
// clusters it runs the exporters of all clusters.
func (f *Fleet) StartExporters(ctx context.Context, clusters ...string) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, s := range f.simulatedNodes(clusters) {
		g.Go(func() error { return f.startExporter(ctx, s) })
	}
	return g.Wait()
}

func (f *Fleet) startExporter(ctx context.Context, s *simulatedNode) error {
	args := []string{"--source=sim", "--collectors=all", "--sim-state=" + s.file, "--pod-resources-kubelet-socket=" + s.socket,
		"--web.listen-address=" + s.exporterAddr, "--collect-interval=1000", "--node-name=" + s.node}
	if s.hami { // the sizes of shares are in annotations
		args = append(args, "--kubernetes-pod-owners", "--kubeconfig="+f.Worker(s.cluster).Kubeconfig)
	}
	return f.procs.Run(ctx, program{
		name: s.exporter(), path: f.bin.Path("plimsoll-exporter"), args: args,
		ready: httpReady("http://"+s.exporterAddr+"/health", httpPlain),
	})
}

// KillExporters ends all exporters of the clusters with SIGKILL, like a broken
// DaemonSet or network.
func (f *Fleet) KillExporters(clusters ...string) error {
	var mu sync.Mutex
	var errs []error
	var wg sync.WaitGroup
	for _, s := range f.simulatedNodes(clusters) {
		wg.Add(1)
		go func() {
			defer wg.Done()
			if err := f.procs.End(s.exporter(), syscall.SIGKILL); err != nil {
				mu.Lock()
				errs = append(errs, err)
				mu.Unlock()
			}
		}()
	}
	wg.Wait()
	return errors.Join(errs...)
}

// simulatedNodes returns the nodes of the clusters, sorted by name. Without
// clusters it returns all nodes.
func (f *Fleet) simulatedNodes(clusters []string) []*simulatedNode {
	f.mu.Lock()
	defer f.mu.Unlock()
	want := map[string]bool{}
	for _, c := range clusters {
		want[c] = true
	}
	var nodes []*simulatedNode
	for _, s := range f.nodes {
		if len(clusters) == 0 || want[s.cluster] {
			nodes = append(nodes, s)
		}
	}
	sort.Slice(nodes, func(i, j int) bool { return nodes[i].node < nodes[j].node })
	return nodes
}
