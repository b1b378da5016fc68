// Command placement runs OCM's controller of Placements. OCM's own command also links the
// controllers of its other commands: 1,900 packages, of which placement needs 750.
package main

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/clock"
	clusterclient "open-cluster-management.io/api/client/cluster/clientset/versioned"
	"open-cluster-management.io/api/client/cluster/clientset/versioned/scheme"
	"open-cluster-management.io/api/client/cluster/informers/externalversions"
	"open-cluster-management.io/ocm/pkg/placement/controllers/metrics"
	"open-cluster-management.io/ocm/pkg/placement/controllers/scheduling"
	"open-cluster-management.io/sdk-go/pkg/basecontroller/events"
)

func main() {
	kubeconfig := flag.String("kubeconfig", "", "kubeconfig of the hub")
	listen := flag.String("listen", "127.0.0.1:8090", "host:port of /healthz")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *kubeconfig, *listen); err != nil {
		fmt.Fprintln(os.Stderr, "placement:", err)
		os.Exit(1)
	}
}

// run runs the controller until ctx ends.
func run(ctx context.Context, kubeconfig, listen string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	clusters, err := clusterclient.NewForConfig(config)
	if err != nil {
		return err
	}
	recorder, err := events.NewEventRecorder(ctx, scheme.Scheme, kube.EventsV1(), "placement-controller")
	if err != nil {
		return err
	}
	factory := externalversions.NewSharedInformerFactory(clusters, 10*time.Minute)
	v1, v1beta1, v1beta2 := factory.Cluster().V1(), factory.Cluster().V1beta1(), factory.Cluster().V1beta2()
	scores := factory.Cluster().V1alpha1().AddOnPlacementScores()
	scheduleMetrics := metrics.NewScheduleMetrics(clock.RealClock{})
	scheduler := scheduling.NewPluginScheduler(scheduling.NewSchedulerHandler(
		clusters, v1beta1.PlacementDecisions().Lister(), scores.Lister(), v1.ManagedClusters().Lister(), recorder, scheduleMetrics))
	controller := scheduling.NewSchedulingController(ctx, clusters, v1.ManagedClusters(), v1beta2.ManagedClusterSets(),
		v1beta2.ManagedClusterSetBindings(), v1beta1.Placements(), v1beta1.PlacementDecisions(), scores, scheduler, recorder, scheduleMetrics)
	factory.Start(ctx.Done())
	go controller.Run(ctx, 1)

	server := &http.Server{Addr: listen, ReadHeaderTimeout: time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusOK)
	})}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	if err := server.ListenAndServe(); ctx.Err() == nil {
		return err
	}
	return nil
}
