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

// options are the values of the command line.
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
	credentialsDir string
	loopback       bool
	clusterMetrics bool
	trials         bool
	ledgerSettle   time.Duration
	logLevel       slog.Level
	logFormat      string
	version        bool
}

// parse parses the command line. It writes errors and the usage to out.
func parse(args []string, out io.Writer) (*options, error) {
	o := &options{}
	f := flag.NewFlagSet("plimsoll-operator", flag.ContinueOnError)
	f.SetOutput(out)
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "path of the kubeconfig of the hub; default: KUBECONFIG, the service account, ~/.kube/config")
	f.StringVar(&o.namespace, "namespace", "plimsoll-system", "namespace of the operator, for leader election and for the Secrets of MetricsSources")
	f.StringVar(&o.metricsAddress, "metrics-bind-address", ":8443", "address of /metrics and /explain; 0 disables them")
	f.BoolVar(&o.metricsSecure, "metrics-secure", true, "serve metrics and explanations over TLS, and only to clients that the API server authenticates and authorizes")
	f.StringVar(&o.metricsCerts, "metrics-cert-dir", "", "directory with tls.crt and tls.key of the metrics server; default: a self-signed certificate")
	f.StringVar(&o.probeAddress, "health-probe-bind-address", ":8081", "address of /livez and /readyz; 0 disables them")
	f.StringVar(&o.pprofAddress, "pprof-bind-address", "0", "address of the profiles at /debug/pprof; they require no authentication, so bind them to a loopback address; 0 disables them")
	f.BoolVar(&o.leaderElect, "leader-elect", true, "elect a leader, so that several replicas can run")
	f.StringVar(&o.dispatch, "multikueue-dispatch", "nominate", "nominate: act as the dispatcher plimsoll.dev/dispatcher of MultiKueue; off: leave the dispatch to Kueue")
	f.StringVar(&o.credentialsDir, "credentials-dir", "", "directory of the token files that MetricsSources may name; default: no file is allowed")
	f.BoolVar(&o.loopback, "allow-loopback-sources", false, "allow MetricsSources at loopback addresses, such as 127.0.0.1, where the operator's own machine serves")
	f.BoolVar(&o.clusterMetrics, "cluster-score-metrics", true, "export plimsoll_score and plimsoll_score_sample_timestamp_seconds, which have one series per policy, score and cluster; without them, metrics count clusters by state only")
	f.BoolVar(&o.trials, "trials", false, "try jobs as TrialPolicies say; requires the permissions of config/trials. Otherwise, every job passes without a trial")
	f.DurationVar(&o.ledgerSettle, "ledger-settle", 15*time.Second, "time from a workload's admission on a cluster to the first sample that shows its devices as used; if Kueue reports when the pods are ready (PodsReady), that time counts instead, with four times this value as the limit")
	f.TextVar(&o.logLevel, "log-level", slog.LevelInfo, "lowest level of log lines: DEBUG, INFO, WARN or ERROR")
	f.StringVar(&o.logFormat, "log-format", logFormatText, "format of log lines: text or json")
	f.BoolVar(&o.version, "version", false, "print the version and exit")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	if err := o.check(f.Args()); err != nil {
		_, _ = fmt.Fprintln(out, "plimsoll-operator:", err)
		return nil, err
	}
	return o, nil
}

// check returns the first invalid option. rest are the arguments after the flags.
func (o *options) check(rest []string) error {
	switch {
	case len(rest) > 0:
		return fmt.Errorf("unexpected argument %q: use flags only", rest[0])
	case o.dispatch != "nominate" && o.dispatch != "off":
		return fmt.Errorf("--multikueue-dispatch must be nominate or off, but is %q", o.dispatch)
	case o.logFormat != logFormatText && o.logFormat != logFormatJSON:
		return fmt.Errorf("--log-format must be text or json, but is %q", o.logFormat)
	case o.namespace == "":
		return fmt.Errorf("--namespace must not be empty")
	}
	return nil
}

// restConfig returns the client configuration of the hub. It disables the rate limit of the
// client: the API server has priority and fairness, and the number of concurrent writes is
// limited.
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
