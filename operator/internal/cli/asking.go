package cli

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	yamlutil "k8s.io/apimachinery/pkg/util/yaml"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	"sigs.k8s.io/yaml"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/clustermap"
	"plimsoll.dev/plimsoll/operator/internal/dial"
	"plimsoll.dev/plimsoll/operator/internal/hubstate"
	"plimsoll.dev/plimsoll/operator/internal/query"
)

const askingHelp = `The files hold one ScoringPolicy and, if you like, the MetricsSource that it names and
the Secrets that this one names: then everything is asked as the operator asks it.
--prometheus asks another URL, such as a forwarded port; the credentials' flags stand in
for Secrets. Secrets are never printed.

The clusters are those named by --clusters, else those of the hub that the policy
selects, else those that the answers name.`

// asking are the flags that say which policy is tried, where it asks, and for which
// clusters.
type asking struct {
	files    []string
	url      string
	clusters []string
	timeout  time.Duration // 0: the source's own
	access   access
}

func (q *asking) add(flags *pflag.FlagSet) {
	flags.StringSliceVarP(&q.files, "filename", "f", nil, "files or folders with a ScoringPolicy, or - for standard input")
	flags.StringVar(&q.url, "prometheus", "", "URL of Prometheus, Thanos Query or Mimir; {cluster} in it stands for each cluster's name")
	flags.StringSliceVar(&q.clusters, "clusters", nil, "names of clusters, instead of the hub's")
	flags.DurationVar(&q.timeout, "timeout", q.timeout, "how long one question may take, 0 for as long as the source's limits allow")
	q.access.add(flags)
}

func (q *asking) check() error {
	if len(q.files) == 0 {
		return usagef("name a policy's file with -f")
	}
	return q.access.check()
}

// trial is a policy and where it asks.
type trial struct {
	policy *v1alpha1.ScoringPolicy
	spec   *v1alpha1.MetricsSourceSpec
	source *query.Client
	info   query.SourceInfo
}

// given is what the files hold.
type given struct {
	policies []*v1alpha1.ScoringPolicy
	sources  map[string]*v1alpha1.MetricsSource
	secrets  map[v1alpha1.SecretKeyReference]string
}

func (q *asking) open(a *app) (*trial, error) {
	g := &given{sources: map[string]*v1alpha1.MetricsSource{}, secrets: map[v1alpha1.SecretKeyReference]string{}}
	files, err := expand(q.files)
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		content, err := a.read(file)
		if err != nil {
			return nil, err
		}
		if err := g.read(file, content); err != nil {
			return nil, err
		}
	}
	if len(g.policies) != 1 {
		return nil, fmt.Errorf("%s: must hold one ScoringPolicy, hold %d", strings.Join(q.files, ", "), len(g.policies))
	}
	t := &trial{policy: g.policies[0]}
	src := g.sources[t.policy.Spec.SourceRef.Name]
	if src == nil && q.url == "" {
		return nil, usagef("name a Prometheus with --prometheus, or a file with MetricsSource %q with -f", t.policy.Spec.SourceRef.Name)
	}
	return t, q.dial(a, t, src, g.secrets)
}

// dial makes the client of a source, of the flags, or of both.
func (q *asking) dial(a *app, t *trial, src *v1alpha1.MetricsSource, secrets map[v1alpha1.SecretKeyReference]string) error {
	if src == nil {
		src = &v1alpha1.MetricsSource{ObjectMeta: metav1.ObjectMeta{Name: "flags"}}
	}
	switch {
	case strings.Contains(q.url, query.ClusterPlaceholder):
		src.Spec.Topology = &v1alpha1.Topology{Type: v1alpha1.TopologyPerCluster, URLTemplate: q.url}
	case q.url != "":
		src.Spec.URL, src.Spec.Topology = q.url, nil
	}
	if err := q.access.override(&src.Spec); err != nil {
		return err
	}
	for _, ref := range dial.References(&src.Spec) {
		if _, ok := secrets[ref]; !ok {
			return fmt.Errorf("MetricsSource %s needs key %q of Secret %q: put that Secret into a file for -f, or give the credentials by flags", src.Name, ref.Key, ref.Name)
		}
	}
	cfg, err := dial.Config(src, secrets, "")
	if err != nil {
		return err
	}
	if err := q.access.apply(&cfg.HTTP); err != nil {
		return err
	}
	cfg.Timeout = cmp.Or(q.timeout, cfg.Timeout)
	if cfg.HTTP.TLSConfig.InsecureSkipVerify {
		_, _ = fmt.Fprintln(a.ErrOut, "warning: certificates are not verified: whoever stands in between can read credentials and choose scores")
	}
	t.spec, t.info = &src.Spec, dial.Info(src)
	t.source, err = query.New(cfg)
	return err
}

// read the documents of a file that matter here.
func (g *given) read(file string, content []byte) error {
	documents := yamlutil.NewYAMLReader(bufio.NewReader(bytes.NewReader(content)))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		var kind metav1.TypeMeta
		if err := yaml.Unmarshal(document, &kind); err != nil {
			return fmt.Errorf("%s: it is no YAML: see lint", file) // the text may hold what must not be shown
		}
		if err := g.add(kind, document); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
}

func (g *given) add(kind metav1.TypeMeta, document []byte) error {
	switch kind.APIVersion + " " + kind.Kind {
	case v1alpha1.GroupVersion.String() + " ScoringPolicy":
		policy, err := policyIn(document)
		g.policies = append(g.policies, policy)
		return err
	case v1alpha1.GroupVersion.String() + " MetricsSource":
		src := &v1alpha1.MetricsSource{}
		err := yaml.UnmarshalStrict(document, src)
		g.sources[src.Name] = src
		return err
	case "v1 Secret":
		secret := &corev1.Secret{}
		if err := yaml.Unmarshal(document, secret); err != nil {
			return errors.New("a Secret can't be read: its data must be base64")
		}
		for key, value := range secret.Data {
			g.secrets[v1alpha1.SecretKeyReference{Name: secret.Name, Key: key}] = string(value)
		}
		for key, value := range secret.StringData {
			g.secrets[v1alpha1.SecretKeyReference{Name: secret.Name, Key: key}] = value
		}
	}
	return nil
}

// policyIn a document: one ScoringPolicy, with scores.
func policyIn(document []byte) (*v1alpha1.ScoringPolicy, error) {
	policy := &v1alpha1.ScoringPolicy{}
	if err := yaml.UnmarshalStrict(document, policy); err != nil {
		return nil, err
	}
	if policy.Kind != "ScoringPolicy" || len(policy.Spec.Scores) == 0 {
		return nil, errors.New("must hold one ScoringPolicy with scores")
	}
	return policy, nil
}

// fleet of the command line, of the hub, or of what the answers name. A source that
// names clusters otherwise than by name needs the hub for those of the command line.
func (q *asking) fleet(ctx context.Context, a *app, t *trial, answered func() ([]string, error)) (fleet *clustermap.Mapping, fromAnswers bool, err error) {
	byName := t.info.Match == string(v1alpha1.MatchName)
	if len(q.clusters) > 0 && byName {
		return clustermap.FromNames(t.info.ClusterLabel, q.clusters), false, nil
	}
	var clusters []clusterv1.ManagedCluster
	c, _, err := a.connect()
	if err == nil {
		clusters, err = hubstate.ManagedClusters(ctx, c)
		err = reading("read hub", err)
	}
	switch {
	case err == nil:
		names := q.clusters
		if len(names) == 0 {
			if names, err = hubstate.SelectNames(clusters, t.policy.Spec.ClusterSelector); err != nil {
				return nil, false, fmt.Errorf("clusterSelector: %w", err)
			}
		}
		if fleet = clustermap.New(clusters, t.info).Select(names); fleet.Len() == 0 {
			err = errors.New("the hub has no such cluster: name others with --clusters, or look at clusterSelector")
		}
		return fleet, false, err
	case len(q.clusters) > 0:
		return nil, false, fmt.Errorf("find the clusters' %s %q: %w", t.info.Match, t.info.Key, err)
	case dial.PerCluster(t.spec):
		return nil, false, fmt.Errorf("each cluster has its own endpoint: name them with --clusters: %w", err)
	}
	_, _ = fmt.Fprintf(a.ErrOut, "clusters are those that the answers name: %v\n", err)
	names, err := answered()
	return clustermap.FromNames(t.info.ClusterLabel, names), true, err
}
