package main

import (
	"flag"
	"fmt"
	"io"
	"log/slog"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

type options struct {
	kubeconfig     string
	namespace      string
	metricsAddress string
	metricsSecure  bool
	metricsCerts   string
	probeAddress   string
	pprofAddress   string
	leaderElect    bool
	dispatch       string
	nominateAs     string
	credentialsDir string
	concurrency    int
	ledgerSettle   time.Duration
	ledgerTTL      time.Duration
	logLevel       slog.Level
}

// parse reads the command line; what is wrong is written to out with the usage.
func parse(args []string, out io.Writer) (*options, error) {
	o := &options{}
	f := flag.NewFlagSet("plimsoll-operator", flag.ContinueOnError)
	f.SetOutput(out)
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig of the hub; default: KUBECONFIG, the service account, ~/.kube/config")
	f.StringVar(&o.namespace, "namespace", "plimsoll-system", "namespace of the operator: leader election, and the only one whose Secrets MetricsSources may name")
	f.StringVar(&o.metricsAddress, "metrics-bind-address", ":8443", "address of /metrics and /explain; 0 = none")
	f.BoolVar(&o.metricsSecure, "metrics-secure", true, "serve metrics and explanations over TLS to whom the API server authenticates and authorizes")
	f.StringVar(&o.metricsCerts, "metrics-cert-dir", "", "directory with tls.crt and tls.key for the metrics listener; default: self-signed")
	f.StringVar(&o.probeAddress, "health-probe-bind-address", ":8081", "address of /healthz and /readyz; 0 = none")
	f.StringVar(&o.pprofAddress, "pprof-bind-address", "0", "address of Go's profiles, /debug/pprof; they are not authenticated, so bind them to loopback; 0 = none")
	f.BoolVar(&o.leaderElect, "leader-elect", true, "elect a leader among several operators")
	f.StringVar(&o.dispatch, "multikueue-dispatch", "nominate", "nominate: be Kueue's dispatcher, plimsoll.dev/dispatcher; off: leave that to Kueue")
	f.StringVar(&o.nominateAs, "nominate-as", "kueue", "kueue: nominate as Kueue's own field manager; own: as plimsoll-dispatch, which needs the policy of config/nomination")
	f.StringVar(&o.credentialsDir, "credentials-dir", "", "directory of the token files that MetricsSources may name; default: none may be named")
	f.IntVar(&o.concurrency, "score-write-concurrency", 16, "writes of AddOnPlacementScores at a time, for each policy")
	f.DurationVar(&o.ledgerSettle, "ledger-settle", 15*time.Second, "how long after a workload's admission on a cluster an exporter's sample shows its devices as taken; where Kueue tells when its pods are ready (PodsReady), then, or after four times as long")
	f.DurationVar(&o.ledgerTTL, "ledger-ttl", 10*time.Minute, "how long devices of a nomination are counted as taken when nothing else is heard of it")
	f.TextVar(&o.logLevel, "log-level", slog.LevelInfo, "DEBUG, INFO, WARN or ERROR")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	if err := o.check(f.Args()); err != nil {
		_, _ = fmt.Fprintln(out, "plimsoll-operator:", err)
		return nil, err
	}
	return o, nil
}

func (o *options) check(rest []string) error {
	switch {
	case len(rest) > 0:
		return fmt.Errorf("unexpected argument %q: every setting is a flag", rest[0])
	case o.dispatch != "nominate" && o.dispatch != "off":
		return fmt.Errorf("--multikueue-dispatch must be nominate or off, is %q", o.dispatch)
	case o.nominateAs != "kueue" && o.nominateAs != "own":
		return fmt.Errorf("--nominate-as must be kueue or own, is %q", o.nominateAs)
	case o.namespace == "":
		return fmt.Errorf("--namespace must not be empty")
	case o.concurrency < 1:
		return fmt.Errorf("--score-write-concurrency must be at least 1")
	}
	return nil
}

// restConfig finds the hub. The client does not limit itself: priority and fairness
// of the API server does, and writes are bounded by their concurrency.
func (o *options) restConfig() (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = o.kubeconfig
	cfg, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if err != nil {
		return nil, err
	}
	cfg.QPS = -1
	cfg.UserAgent = "plimsoll-operator"
	return cfg, nil
}
