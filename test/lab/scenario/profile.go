package scenario

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/test/lab/fleet"
)

func profile(ctx context.Context, s *stage) (string, error) {
	s.deleteAtEnd("jobprofile/training")
	s.onEnd(func(ctx context.Context) error { return s.fleet.PatchGate(ctx, `{"profiles":null}`) })
	if err := s.fleet.PatchGate(ctx, `{"profiles":{}}`); err != nil {
		return "", err
	}
	job := fleet.Job{Name: "training", Model: fleet.H100, GPUs: 2, Duration: 30 * time.Second, PodLabels: map[string]string{v1alpha1.ProfileLabel: "training"}}
	if _, err := s.start(ctx, job); err != nil {
		return "", err
	}
	if err := s.awaitView(ctx, "training", "to finish", func(v fleet.JobView) bool { return v.Finished }); err != nil {
		return "", err
	}
	s.log("training has finished")
	found := &v1alpha1.JobProfile{}
	err := fleet.Await(ctx, "the profile of the job", func(ctx context.Context) error {
		err := s.fleet.Hub.Client.Get(ctx, client.ObjectKey{Namespace: fleet.Namespace, Name: "training"}, found)
		if err == nil && len(found.Status.Models) == 0 {
			err = errors.New("the profile has no run")
		}
		return err
	})
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("the run left the profile %s on %s", found.Name, found.Status.Models[0].Model), s.print(ctx, "profile", "-n", fleet.Namespace)
}

// print logs the output of kubectl plimsoll.
func (s *stage) print(ctx context.Context, args ...string) error {
	command := "kubectl plimsoll " + strings.Join(args, " ")
	cmd := exec.CommandContext(ctx, s.fleet.Program("kubectl-plimsoll"), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+s.fleet.Hub.Kubeconfig)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", command, err, out)
	}
	s.log("$ %s", command)
	for line := range strings.Lines(string(out)) {
		s.log("%s", strings.TrimRight(line, "\n"))
	}
	return nil
}
