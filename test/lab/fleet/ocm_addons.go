package fleet

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"text/template"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/api/meta"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"plimsoll.dev/plimsoll/test/lab/components"
)

const (
	agentNamespace = "open-cluster-management-agent"
	agentAccount   = "klusterlet-work-sa"
)

// StartOCM runs OCM's registration controller and add-on manager on the hub, and its
// registration and work agent on each worker, and waits until OCM reports the workers as
// available. It builds OCM's program if needed. It fails as soon as a program of the fleet ends.
func (f *Fleet) StartOCM(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case err := <-f.Failed():
			cancel(err)
		case <-ctx.Done():
		}
	}()
	bin, err := components.Build(ctx, f.opts.Root, f.opts.Progress, "ocm")
	if err != nil {
		return err
	}
	path := bin.Path("ocm")
	if err := errors.Join(f.ApplyOCMCRDs(ctx, "addon"), f.ApplyOCMCRDs(ctx, "work")); err != nil {
		return err
	}
	if err := f.startCertificateSigner(ctx); err != nil {
		return err
	}
	for command, args := range map[string][]string{"registration": {"--auto-approved-users=" + administrator}, "addon": nil} {
		if err := f.procs.Run(ctx, program{name: ocmProgram(Hub, command), path: path,
			args: append([]string{command, "--kubeconfig=" + f.Hub.Kubeconfig}, args...)}); err != nil {
			return err
		}
	}
	g, gctx := errgroup.WithContext(ctx)
	for _, w := range f.Workers {
		g.Go(func() error { return w.startOCMAgent(gctx, path) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	return Await(ctx, "the workers to register", f.checkRegistered)
}

// StopOCM ends the programs of StartOCM. The ManagedClusters keep their last conditions.
func (f *Fleet) StopOCM() error {
	var errs []error
	for _, w := range f.Workers {
		errs = append(errs, f.procs.End(ocmProgram(w.Name, "agent"), syscall.SIGTERM))
	}
	for _, program := range []string{ocmProgram(Hub, "addon"), ocmProgram(Hub, "registration"), Hub + "-" + certificateSigner} {
		errs = append(errs, f.procs.End(program, syscall.SIGTERM))
	}
	return errors.Join(errs...)
}

// PauseOCMAgent stops OCM's agent of a worker as if the worker had lost its network.
func (f *Fleet) PauseOCMAgent(worker string) error {
	return f.procs.Signal(ocmProgram(worker, "agent"), syscall.SIGSTOP)
}

// ResumeOCMAgent continues an agent after PauseOCMAgent.
func (f *Fleet) ResumeOCMAgent(worker string) error {
	return f.procs.Signal(ocmProgram(worker, "agent"), syscall.SIGCONT)
}

func ocmProgram(cluster, command string) string { return cluster + "-ocm-" + command }

const certificateSigner = "csrsigning-controller"

// startCertificateSigner signs certificates for the agents, as the kube-controller-manager of
// a hub does.
func (f *Fleet) startCertificateSigner(ctx context.Context) error {
	key, err := x509.MarshalPKCS8PrivateKey(f.ca.key)
	if err != nil {
		return err
	}
	dir := filepath.Join(f.opts.Dir, "pki", Hub)
	if err := os.WriteFile(filepath.Join(dir, "ca.key"), pemBlock("PRIVATE KEY", key), 0o600); err != nil {
		return err
	}
	return f.Hub.runController(ctx, certificateSigner, "kube-controller-manager", "--kubeconfig="+f.Hub.Kubeconfig, "--leader-elect=false",
		"--profiling=false", "--controllers=certificatesigningrequest-signing-controller",
		"--cluster-signing-cert-file="+filepath.Join(dir, "ca.crt"), "--cluster-signing-key-file="+filepath.Join(dir, "ca.key"))
}

// startOCMAgent runs OCM's agent with a token of its service account, which has the roles of
// OCM's own manifests.
func (c *Cluster) startOCMAgent(ctx context.Context, path string) error {
	manifests, err := c.fleet.klusterletManifests(ctx)
	if err != nil {
		return err
	}
	if err := c.Apply(ctx, manifests); err != nil {
		return err
	}
	kubeconfig, err := c.serviceAccountKubeconfig(ctx, c.Name+"-ocm-agent.kubeconfig", agentNamespace, agentAccount)
	if err != nil {
		return err
	}
	name := ocmProgram(c.Name, "agent")
	return c.fleet.procs.Run(ctx, program{name: name, path: path, args: []string{"agent", "--kubeconfig=" + kubeconfig,
		"--cluster=" + c.Name, "--bootstrap-kubeconfig=" + c.fleet.Hub.Kubeconfig,
		"--hub-kubeconfig-dir=" + filepath.Join(c.fleet.opts.Dir, "work", name, "hub")}})
}

// klusterletObjects are objects that OCM's klusterlet operator creates without a manifest.
const klusterletObjects = `
apiVersion: v1
kind: Namespace
metadata: {name: ` + agentNamespace + `}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: "open-cluster-management:klusterlet-work:aggregate"}
aggregationRule: {clusterRoleSelectors: [{matchLabels: {open-cluster-management.io/aggregate-to-work: "true"}}]}
`

// klusterletManifests returns the CRDs, accounts and roles of OCM's agents on a worker, from
// OCM's templates.
func (f *Fleet) klusterletManifests(ctx context.Context) (string, error) {
	dir, err := components.SourceDir(ctx, f.opts.Root, "ocm", "open-cluster-management.io/ocm")
	if err != nil {
		return "", err
	}
	managed, err := filepath.Glob(filepath.Join(dir, "manifests", "klusterlet", "managed", "*.yaml"))
	if err != nil {
		return "", err
	}
	management, err := filepath.Glob(filepath.Join(dir, "manifests", "klusterlet", "management", "*role*.yaml"))
	if err != nil {
		return "", err
	}
	if len(managed) == 0 || len(management) == 0 {
		return "", fmt.Errorf("no manifests of OCM's klusterlet in %s", dir)
	}
	values := map[string]any{
		"KlusterletName": "klusterlet", "KlusterletNamespace": agentNamespace, "AgentNamespace": agentNamespace,
		"WorkServiceAccount": agentAccount, "RegistrationServiceAccount": agentAccount, "Labels": map[string]string{},
	}
	rendered := []string{klusterletObjects}
	for _, file := range slices.Concat(managed, management) {
		parsed, err := template.ParseFiles(file)
		if err != nil {
			return "", err
		}
		var out strings.Builder
		if err := parsed.Execute(&out, values); err != nil {
			return "", err
		}
		rendered = append(rendered, out.String())
	}
	return strings.Join(rendered, "\n---\n"), nil
}

// checkRegistered returns an error unless OCM, and not only the lab, reports that each worker
// is available.
func (f *Fleet) checkRegistered(ctx context.Context) error {
	var errs []error
	for _, w := range f.Workers {
		managed := &clusterv1.ManagedCluster{}
		if err := f.Hub.Client.Get(ctx, client.ObjectKey{Name: w.Name}, managed); err != nil {
			return err
		}
		available := meta.FindStatusCondition(managed.Status.Conditions, clusterv1.ManagedClusterConditionAvailable)
		if available == nil || available.Reason != "ManagedClusterAvailable" {
			errs = append(errs, fmt.Errorf("%s: %+v", w.Name, available))
		}
	}
	return errors.Join(errs...)
}
