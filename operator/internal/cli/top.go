package cli

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"

	"plimsoll.dev/plimsoll/operator/internal/gate"
)

func newTop(streams genericclioptions.IOStreams, flags *genericclioptions.ConfigFlags, connect connector) *cobra.Command {
	return &cobra.Command{
		Use: "top", Short: "Every cluster's scores", Args: exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, _, err := connect(flags)
			if err != nil {
				return err
			}
			e := &gate.Explanation{}
			if err := addScores(cmd.Context(), c, e); err != nil {
				return err
			}
			if len(e.Clusters) == 0 {
				fmt.Fprintln(streams.ErrOut, "No cluster has a score: is there a ScoringPolicy that is Ready? (kubectl get scoringpolicies)")
				return nil
			}
			w := tabwriter.NewWriter(streams.Out, 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, "CLUSTER\tSCORES")
			for _, cluster := range e.Clusters {
				fmt.Fprintf(w, "%s\t%s\n", cluster.Cluster, scores(cluster.Scores, time.Now()))
			}
			return w.Flush()
		},
	}
}

// scores as policy/score=value, expired ones marked.
func scores(all map[string]gate.Score, now time.Time) string {
	var out []string
	for _, key := range slices.Sorted(maps.Keys(all)) {
		text := fmt.Sprintf("%s=%d", key, all[key].Value)
		if until := all[key].ValidUntil; !until.IsZero() && until.Before(now) {
			text += fmt.Sprintf(" (expired %s ago)", now.Sub(until).Round(time.Second))
		}
		out = append(out, text)
	}
	return strings.Join(out, " ")
}
