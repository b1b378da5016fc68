// Command lab runs a fleet of clusters on this machine; see package fleet.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"plimsoll.dev/plimsoll/test/lab/components"
	"plimsoll.dev/plimsoll/test/lab/fleet"
	"plimsoll.dev/plimsoll/test/lab/scenario"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	log.SetLogger(logr.Discard()) // client-go logs lost watches
	if err := command().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "lab:", err)
		os.Exit(1)
	}
}

func command() *cobra.Command {
	root := &cobra.Command{
		Use: "lab", Short: "Run a fleet on this machine: a hub and workers with OCM, Kueue, Prometheus and Thanos",
		SilenceUsage: true, SilenceErrors: true,
		TraverseChildren: true, // --dir also works before kubectl, which parses no flags
	}
	dir, err := fleet.DefaultDir()
	if err != nil {
		dir = "lab-state"
	}
	root.PersistentFlags().StringVar(&dir, "dir", dir, "folder for state, data and logs (also PLIMSOLL_LAB_DIR)")
	root.AddCommand(buildCommand(), pathCommand(), assetsCommand(), bundleCommand(), upCommand(&dir), scenarioCommand(&dir), downCommand(&dir), statusCommand(&dir), logsCommand(&dir), kubectlCommand(&dir))
	return root
}

func buildCommand() *cobra.Command {
	return &cobra.Command{Use: "build", Short: "Build all components that are not cached", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			root, err := fleet.FindRoot()
			if err != nil {
				return err
			}
			_, err = components.Build(cmd.Context(), root, os.Stderr, components.All()...)
			return err
		}}
}

func pathCommand() *cobra.Command {
	return &cobra.Command{Use: "path PROGRAM", Short: "Print the path of a component's program; build it first if needed", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			root, err := fleet.FindRoot()
			if err != nil {
				return err
			}
			bin, err := components.Build(cmd.Context(), root, os.Stderr, args[0])
			if err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), bin.Path(args[0]))
			return nil
		}}
}

func assetsCommand() *cobra.Command {
	return &cobra.Command{Use: "assets", Short: "Print a folder for KUBEBUILDER_ASSETS, with the lab's kube-apiserver, etcd and kubectl", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			root, err := fleet.FindRoot()
			if err != nil {
				return err
			}
			dir, err := components.Assets(cmd.Context(), root, os.Stderr)
			if err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), dir)
			return nil
		}}
}

func bundleCommand() *cobra.Command {
	return &cobra.Command{Use: "bundle FILE", Short: "Pack all components into a tar.gz file for machines that should not build them", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			root, err := fleet.FindRoot()
			if err != nil {
				return err
			}
			return components.Bundle(cmd.Context(), root, args[0], os.Stderr)
		}}
}

func upCommand(dir *string) *cobra.Command {
	var bare bool
	var dispatcher string
	cmd := &cobra.Command{Use: "up", Short: "Start the fleet with Plimsoll; Ctrl-C ends it", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx := cmd.Context()
			f, err := fleet.Up(ctx, fleet.Options{Dir: *dir, Dispatcher: dispatcher, Bare: bare})
			if err != nil {
				return err
			}
			defer f.Stop()
			if !bare {
				if err := f.StartPlimsoll(ctx); err != nil {
					return err
				}
			}
			fmt.Fprint(os.Stderr, f.Hints(""))
			select {
			case <-ctx.Done():
				fmt.Fprintln(os.Stderr, "lab: ending the fleet")
				return nil
			case err := <-f.Failed():
				return err
			}
		}}
	cmd.Flags().BoolVar(&bare, "bare", false, "do not install Plimsoll: no CRDs, samples, exporters or operator")
	cmd.Flags().StringVar(&dispatcher, "dispatcher", fleet.OperatorDispatcher, "MultiKueue's dispatcherName on the hub")
	return cmd
}

func scenarioCommand(dir *string) *cobra.Command {
	var list strings.Builder
	for _, s := range scenario.All {
		fmt.Fprintf(&list, "  %-20s %s\n", s.Name, s.Short)
	}
	return &cobra.Command{Use: "scenario NAME", Short: "Start a fleet, run a scenario on it and end the fleet", Args: cobra.ExactArgs(1),
		Long: "Start a fleet, run a scenario on it and end the fleet. The scenarios:\n\n" + list.String(),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			s, err := scenario.Find(args[0])
			if err != nil {
				return err
			}
			f, err := fleet.Up(ctx, fleet.Options{Dir: *dir})
			if err != nil {
				return err
			}
			defer f.Stop()
			if err := errors.Join(f.StartPlimsoll(ctx), f.AwaitScores(ctx)); err != nil {
				return err
			}
			out := cmd.OutOrStdout()
			fmt.Fprintf(out, "%s: %s\n", s.Name, s.Short)
			outcome, err := s.Run(ctx, f, func(format string, args ...any) { fmt.Fprintf(out, "  "+format+"\n", args...) })
			if err != nil {
				return fmt.Errorf("scenario %s: %w", s.Name, err)
			}
			fmt.Fprintf(out, "%s\n", outcome)
			return nil
		}}
}

func downCommand(dir *string) *cobra.Command {
	return &cobra.Command{Use: "down", Short: "End the fleet that `lab up` started", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return fleet.Down(*dir) }}
}

func statusCommand(dir *string) *cobra.Command {
	return &cobra.Command{Use: "status", Short: "Show the running programs and their addresses", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := fleet.ReadState(*dir)
			if err != nil {
				return err
			}
			out := cmd.OutOrStdout()
			fmt.Fprintf(out, "pid %d since %s\nthanos      %s\n", s.Pid, s.Started.Format("15:04:05"), s.Thanos)
			for _, name := range slices.Sorted(maps.Keys(s.Kubeconfigs)) {
				fmt.Fprintf(out, "%-11s KUBECONFIG=%s  prometheus %s\n", name, s.Kubeconfigs[name], s.Prometheus[name])
			}
			for _, name := range slices.Sorted(maps.Keys(s.Programs)) {
				p := s.Programs[name]
				fmt.Fprintf(out, "  %-36s %7d  %s\n", name, p.Pid, cmp.Or(p.Ended, "running"))
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
				if err == nil && len(files) == 0 {
					err = fmt.Errorf("no logs in %s", folder)
				}
				for _, file := range files {
					fmt.Fprintln(cmd.OutOrStdout(), strings.TrimSuffix(filepath.Base(file), ".log"))
				}
				return err
			}
			tail := []string{"tail", "-n", "200"}
			if follow {
				tail = append(tail, "-f")
			}
			return runProgram(cmd.Context(), append(tail, filepath.Join(folder, args[0]+".log")), nil)
		}}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "print new lines as they are written")
	return cmd
}

func kubectlCommand(dir *string) *cobra.Command {
	return &cobra.Command{Use: "kubectl CLUSTER ARGS...", Short: "Run kubectl against a cluster: hub, cluster1, cluster2 or cluster3", DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("no cluster given; example: lab kubectl hub get workloads -A")
			}
			s, err := fleet.ReadState(*dir)
			if err != nil {
				return err
			}
			kubeconfig, ok := s.Kubeconfigs[args[0]]
			if !ok {
				return fmt.Errorf("no cluster %q; the clusters are %s", args[0], strings.Join(slices.Sorted(maps.Keys(s.Kubeconfigs)), ", "))
			}
			return runProgram(cmd.Context(), append([]string{s.Kubectl}, args[1:]...), []string{"KUBECONFIG=" + kubeconfig})
		}}
}

// runProgram runs a program with this process's standard streams.
func runProgram(ctx context.Context, args, env []string) error {
	c := exec.CommandContext(ctx, args[0], args[1:]...)
	c.Env = append(os.Environ(), env...)
	c.Stdin, c.Stdout, c.Stderr = os.Stdin, os.Stdout, os.Stderr
	return c.Run()
}
