package fleet

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"plimsoll.dev/plimsoll/test/lab/components"
)

// UpNodes starts the GPU nodes of the workers with an exporter each, and nothing else: no
// control planes, no Prometheus. It builds the exporter and no other component, so it is
// ready within seconds. RunPod starts pods on the nodes.
func UpNodes(ctx context.Context, opts Options) (*Fleet, error) {
	if err := opts.setDefaults(); err != nil {
		return nil, err
	}
	bin, err := components.BuildExporter(ctx, opts.Root, opts.Progress)
	if err != nil {
		return nil, err
	}
	f, lifetime, err := newFleet(ctx, opts, bin)
	if err != nil {
		return nil, err
	}
	if err := f.bootNodes(ctx, lifetime); err != nil {
		f.Stop()
		return nil, err
	}
	return f, nil
}

func (f *Fleet) bootNodes(ctx, lifetime context.Context) error {
	for _, w := range f.opts.Workers {
		for _, n := range w.Nodes {
			node, err := f.newSimulatedNode(w.Name, n)
			if err != nil {
				return err
			}
			if err := node.serve(&f.servers); err != nil {
				return err
			}
			f.targets.add(w.Name, scrapeTarget{addr: node.exporterAddr})
		}
		addr, err := f.serveNodeStates(lifetime, w)
		if err != nil {
			return err
		}
		f.targets.add(w.Name, scrapeTarget{addr: addr})
	}
	return f.StartExporters(ctx)
}

// serveNodeStates serves the series of kube-state-metrics that the recording rules read,
// for nodes that are ready and schedulable, and a pod that requests nothing.
func (f *Fleet) serveNodeStates(lifetime context.Context, w Worker) (addr string, err error) {
	var b strings.Builder
	for _, n := range w.Nodes {
		fmt.Fprintf(&b, "kube_node_status_condition{node=%q,condition=\"Ready\",status=\"true\"} 1\n", n.Name)
		fmt.Fprintf(&b, "kube_node_spec_unschedulable{node=%q} 0\n", n.Name)
		resource := strings.NewReplacer(".", "_", "/", "_").Replace(string(n.resource()))
		devices := n.GPUs * max(n.Replicas, 1)
		fmt.Fprintf(&b, "kube_node_status_capacity{node=%q,resource=%q} %d\n", n.Name, resource, devices)
		for resource, amount := range map[string]int{resource: devices, "cpu": 128, "memory": 1 << 40, "pods": 110} {
			fmt.Fprintf(&b, "kube_node_status_allocatable{node=%q,resource=%q} %d\n", n.Name, resource, amount)
		}
	}
	b.WriteString("kube_pod_status_phase{namespace=\"kube-system\",pod=\"kube-state-metrics\",phase=\"Running\"} 1\n")
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	server := &http.Server{ReadHeaderTimeout: time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4")
		fmt.Fprint(w, b.String())
	})}
	f.servers.Add(2)
	go func() { defer f.servers.Done(); _ = server.Serve(listener) }() // returns after Close
	go func() { defer f.servers.Done(); <-lifetime.Done(); _ = server.Close() }()
	return listener.Addr().String(), nil
}

// Targets returns the host:port of all endpoints with a cluster's metrics.
func (f *Fleet) Targets(cluster string) []string {
	var addresses []string
	for _, t := range f.targets.list(cluster) {
		addresses = append(addresses, t.addr)
	}
	return addresses
}

// RunPod binds a pod to the cluster's first node that has the devices free, as
// kube-scheduler would, and allocates the devices. Only a fleet of UpNodes needs it: on
// other fleets the worker's own scheduler binds pods.
func (f *Fleet) RunPod(cluster string, model GPUModel, pod *corev1.Pod) error {
	for _, s := range f.simulatedNodes([]string{cluster}) {
		if s.bind(pod, model.Product) {
			return nil
		}
	}
	return fmt.Errorf("no node of %s has the %s free that pod %s requests", cluster, model.Label, pod.Name)
}

// EndPod frees the devices of a pod that RunPod started.
func (f *Fleet) EndPod(cluster string, pod *corev1.Pod) {
	for _, s := range f.simulatedNodes([]string{cluster}) {
		s.observe(pod, true)
	}
}

// bind allocates devices to the pod if the node has the model and enough free devices.
func (s *simulatedNode) bind(pod *corev1.Pod, product string) bool {
	wanted := 0
	for _, container := range pod.Spec.Containers {
		quantity := container.Resources.Limits[s.resource]
		wanted += int(quantity.Value())
	}
	s.mu.Lock()
	free := 0
	for _, u := range s.units {
		if s.state.Devices[u.device].Model == product {
			free++
		}
	}
	free -= len(s.taken())
	s.mu.Unlock()
	if free < wanted {
		return false
	}
	s.observe(pod, false)
	return true
}
