// Command lab runs a whole fleet on this machine; see package fleet.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"sort"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"plimsoll.dev/plimsoll/test/lab/fleet"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := command().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "lab:", err)
		os.Exit(1)
	}
}

func command() *cobra.Command {
	root := &cobra.Command{
		Use: "lab", Short: "A whole fleet on this machine: hub, workers, OCM, Kueue, Prometheus, Thanos",
		SilenceUsage: true, SilenceErrors: true,
	}
	dir, err := fleet.DefaultDir()
	if err != nil {
		dir = "lab-state"
	}
	root.PersistentFlags().StringVar(&dir, "dir", dir, "folder for state, data and logs (also PLIMSOLL_LAB_DIR)")
	root.AddCommand(buildCommand(), pathCommand(), upCommand(&dir), downCommand(&dir), statusCommand(&dir), logsCommand(&dir), kubectlCommand(&dir))
	return root
}

func buildCommand() *cobra.Command {
	return &cobra.Command{Use: "build", Short: "Build the components that are not cached yet", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			root, err := fleet.FindRoot()
			if err != nil {
				return err
			}
			_, err = fleet.Build(cmd.Context(), root, os.Stderr)
			return err
		}}
}

func pathCommand() *cobra.Command {
	return &cobra.Command{Use: "path PROGRAM", Short: "Print where a component's program is, building it if need be", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			root, err := fleet.FindRoot()
			if err != nil {
				return err
			}
			bin, err := fleet.Build(cmd.Context(), root, os.Stderr)
			if err != nil {
				return err
			}
			path := bin.Path(args[0])
			if _, err := os.Stat(path); err != nil {
				return fmt.Errorf("the lab has no program %q", args[0])
			}
			fmt.Fprintln(cmd.OutOrStdout(), path)
			return nil
		}}
}

func upCommand(dir *string) *cobra.Command {
	var bare bool
	var dispatcher string
	cmd := &cobra.Command{Use: "up", Short: "Start the fleet with Plimsoll on it; Ctrl-C ends it", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx := cmd.Context()
			f, err := fleet.Up(ctx, fleet.Options{Dir: *dir, Dispatcher: dispatcher, Bare: bare})
			if err != nil {
				return err
			}
			defer f.Stop()
			if !bare {
				if err := errors.Join(f.Install(ctx), f.StartExporters(ctx)); err != nil {
					return err
				}
				if err := f.StartOperator(ctx); err != nil {
					return err
				}
			}
			fmt.Fprint(os.Stderr, f.Hints())
			select {
			case <-ctx.Done():
				fmt.Fprintln(os.Stderr, "lab: ending")
				return nil
			case err := <-f.Failed():
				return err
			}
		}}
	cmd.Flags().BoolVar(&bare, "bare", false, "leave Plimsoll out: no CRDs, samples, exporters, operator")
	cmd.Flags().StringVar(&dispatcher, "dispatcher", "", "MultiKueue's dispatcherName on the hub")
	return cmd
}

func downCommand(dir *string) *cobra.Command {
	return &cobra.Command{Use: "down", Short: "End the fleet", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return fleet.Down(*dir) }}
}

func statusCommand(dir *string) *cobra.Command {
	return &cobra.Command{Use: "status", Short: "Show what runs", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := fleet.ReadState(*dir)
			if err != nil {
				return err
			}
			out := cmd.OutOrStdout()
			fmt.Fprintf(out, "pid %d since %s\nthanos      %s\n", s.Pid, s.Started.Format("15:04:05"), s.Thanos)
			for _, name := range sorted(s.Kubeconfigs) {
				fmt.Fprintf(out, "%-11s KUBECONFIG=%s  prometheus %s\n", name, s.Kubeconfigs[name], s.Prometheus[name])
			}
			for _, name := range sorted(s.Programs) {
				state := "runs"
				if syscall.Kill(s.Programs[name], 0) != nil {
					state = "ended"
				}
				fmt.Fprintf(out, "  %-36s %7d  %s\n", name, s.Programs[name], state)
			}
			return nil
		}}
}

func logsCommand(dir *string) *cobra.Command {
	var follow bool
	cmd := &cobra.Command{Use: "logs [PROGRAM]", Short: "Show a program's log, or list the programs", Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			folder := filepath.Join(*dir, "logs")
			if len(args) == 0 {
				files, err := filepath.Glob(filepath.Join(folder, "*.log"))
				for _, file := range files {
					fmt.Fprintln(cmd.OutOrStdout(), strings.TrimSuffix(filepath.Base(file), ".log"))
				}
				return err
			}
			tail := []string{"tail", "-n", "200"}
			if follow {
				tail = append(tail, "-f")
			}
			return run(cmd.Context(), append(tail, filepath.Join(folder, args[0]+".log")), nil)
		}}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on with what is written")
	return cmd
}

func kubectlCommand(dir *string) *cobra.Command {
	return &cobra.Command{Use: "kubectl CLUSTER ARGS...", Short: "Run kubectl on hub, cluster1, …", DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("name a cluster: lab kubectl hub get workloads -A")
			}
			s, err := fleet.ReadState(*dir)
			if err != nil {
				return err
			}
			kubeconfig, ok := s.Kubeconfigs[args[0]]
			if !ok {
				return fmt.Errorf("no cluster %q; there are %s", args[0], strings.Join(sorted(s.Kubeconfigs), ", "))
			}
			return run(cmd.Context(), append([]string{s.Kubectl}, args[1:]...), []string{"KUBECONFIG=" + kubeconfig})
		}}
}

func run(ctx context.Context, args, env []string) error {
	c := exec.CommandContext(ctx, args[0], args[1:]...)
	c.Env = append(os.Environ(), env...)
	c.Stdin, c.Stdout, c.Stderr = os.Stdin, os.Stdout, os.Stderr
	return c.Run()
}

func sorted[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}
