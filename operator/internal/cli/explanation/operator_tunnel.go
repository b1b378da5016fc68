package explanation

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/streaming/pkg/httpstream"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"plimsoll.dev/plimsoll/operator/internal/cli/command"
	"plimsoll.dev/plimsoll/operator/internal/cli/hubclient"
)

const (
	// operatorPort is the name of the metrics listener's port in the pods.
	operatorPort = "https-metrics"
	// explainerName is the ServiceAccount that may read what the operator explains, and the
	// Role that grants the way to the operator.
	explainerName = "plimsoll-explainer"
)

// tunnelClient returns a client of the operator's metrics listener. The connection leads
// through the API server to a pod of the operator, as that of kubectl port-forward does. It
// therefore needs no address and no certificate: the API server and the kubelet connect to
// the pod itself.
//
// The operator reviews the token of each request. Kubeconfigs with a client certificate have
// none: the client then requests one for the ServiceAccount plimsoll-explainer.
func (o *OperatorFlags) tunnelClient(ctx context.Context, a *command.App) (*http.Client, error) {
	config, err := hubclient.RESTConfig(a)
	if err != nil {
		return nil, err
	}
	if config.Impersonate.UserName != "" {
		return nil, errors.New("the operator checks your own token and ignores --as: set --operator-url and --token-file instead")
	}
	hub, _, err := hubclient.Connect(a)
	if err != nil {
		return nil, err
	}
	pod, port, err := o.findPod(ctx, hub)
	if err != nil {
		return nil, err
	}
	tunnel := &podTunnel{config: config, path: fmt.Sprintf("/api/v1/namespaces/%s/pods/%s/portforward", o.namespace, pod), port: port,
		missing: o.missingRight("create pods/portforward")}
	transport := &http.Transport{DialTLSContext: tunnel.dial, DisableKeepAlives: true}
	bearer := rest.CopyConfig(config)
	bearer.Username, bearer.Password = "", "" // the operator accepts tokens only, and must not see a password
	authenticated, err := rest.HTTPWrappersForConfig(bearer, &tokenTransport{next: transport, request: func(ctx context.Context) (string, error) {
		return o.requestToken(ctx, hub)
	}})
	if err != nil {
		return nil, err
	}
	return &http.Client{Timeout: operatorTimeout, Transport: authenticated}, nil
}

// findPod returns a running pod with the operator's ServiceAccount, and its port. The caller's
// token goes to it: other pods with the operator's label don't get it. With several replicas, it is
// the leader: only the leader has rounds and decisions.
func (o *OperatorFlags) findPod(ctx context.Context, hub client.Client) (name string, port int32, err error) {
	var pods corev1.PodList
	err = hub.List(ctx, &pods, client.InNamespace(o.namespace), client.MatchingLabels{"app.kubernetes.io/name": hubclient.OperatorName})
	if err != nil {
		return "", 0, o.explainForbidden("list pods", err)
	}
	pods.Items = slices.DeleteFunc(pods.Items, func(p corev1.Pod) bool {
		return p.Status.Phase != corev1.PodRunning || p.Spec.ServiceAccountName != hubclient.OperatorName
	})
	if len(pods.Items) == 0 {
		return "", 0, fmt.Errorf("namespace %s has no running pod of the operator: set --operator-namespace, or --operator-url if the operator runs elsewhere", o.namespace)
	}
	chosen := &pods.Items[0]
	if len(pods.Items) > 1 {
		var lease coordinationv1.Lease
		if err := hub.Get(ctx, client.ObjectKey{Namespace: o.namespace, Name: hubclient.OperatorName}, &lease); client.IgnoreNotFound(err) != nil {
			return "", 0, o.explainForbidden("get the Lease "+hubclient.OperatorName, err)
		}
		if holder := lease.Spec.HolderIdentity; holder != nil {
			leader, _, _ := strings.Cut(*holder, "_") // client-go appends a random identifier to the host name
			if i := slices.IndexFunc(pods.Items, func(p corev1.Pod) bool { return p.Name == leader }); i >= 0 {
				chosen = &pods.Items[i]
			}
		}
	}
	for _, c := range chosen.Spec.Containers {
		for _, p := range c.Ports {
			if p.Name == operatorPort {
				return chosen.Name, p.ContainerPort, nil
			}
		}
	}
	return "", 0, fmt.Errorf("the pod %s/%s has no port %s: it serves no explanations (--metrics-bind-address=0)", o.namespace, chosen.Name, operatorPort)
}

// requestToken returns a short-lived token of the ServiceAccount plimsoll-explainer.
func (o *OperatorFlags) requestToken(ctx context.Context, hub client.Client) (string, error) {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: o.namespace, Name: explainerName}}
	seconds := int64(600) // the shortest that the API server accepts
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}
	if err := hub.SubResource("token").Create(ctx, account, request); err != nil {
		return "", fmt.Errorf("your kubeconfig has a client certificate, and the operator accepts tokens only: %w",
			o.explainForbidden("create serviceaccounts/token of "+explainerName, err))
	}
	return request.Status.Token, nil
}

// explainForbidden replaces a Forbidden error by the missing right and its remedy.
func (o *OperatorFlags) explainForbidden(right string, err error) error {
	if apierrors.IsForbidden(err) {
		return o.missingRight(right)
	}
	return fmt.Errorf("%s in namespace %s: %w", right, o.namespace, err)
}

func (o *OperatorFlags) missingRight(right string) error {
	role := explainerName
	if strings.Contains(right, "token") {
		role = explainerName + "-token"
	}
	return fmt.Errorf("your user may not %s in namespace %s: bind the user to the Role %s there", right, o.namespace, role)
}

// tokenTransport adds a requested token to requests without credentials.
type tokenTransport struct {
	next    http.RoundTripper
	request func(context.Context) (string, error)
}

// RoundTrip implements http.RoundTripper.
func (t *tokenTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Header.Get("Authorization") != "" {
		return t.next.RoundTrip(req)
	}
	token, err := t.request(req.Context())
	if err != nil {
		return nil, err
	}
	req = req.Clone(req.Context())
	req.Header.Set("Authorization", "Bearer "+token)
	return t.next.RoundTrip(req)
}

// podTunnel opens connections to a port of a pod through the API server.
type podTunnel struct {
	config  *rest.Config
	path    string
	port    int32
	missing error // if the user may not open the tunnel
}

// dial opens a connection and starts TLS. The certificate is not verified: it is usually
// self-signed, and the API server has already chosen the peer.
func (t *podTunnel) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	stream, err := t.open()
	if err != nil {
		return nil, err
	}
	conn := tls.Client(stream, &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}) //nolint:gosec // see above
	if err := conn.HandshakeContext(ctx); err != nil {
		_ = stream.Close()
		return nil, fmt.Errorf("port-forward to the operator: %w", err)
	}
	return conn, nil
}

// open opens the two streams of a forwarded port: WebSockets first, and SPDY for API servers
// and proxies without them, as kubectl does.
func (t *podTunnel) open() (*podStream, error) {
	server, _, err := rest.DefaultServerUrlFor(t.config)
	if err != nil {
		return nil, err
	}
	url := server.JoinPath(t.path)
	roundTripper, upgrader, err := spdy.RoundTripperFor(t.config)
	if err != nil {
		return nil, err
	}
	websocket, err := portforward.NewSPDYOverWebsocketDialerForStreaming(url, t.config)
	if err != nil {
		return nil, err
	}
	forbidden := false
	dialer := portforward.NewFallbackDialerForStreaming(websocket, spdy.NewDialerForStreaming(upgrader, &http.Client{Transport: roundTripper}, http.MethodPost, url), func(err error) bool {
		// Only the failure of the first attempt has a reason.
		var failure *httpstream.UpgradeFailureError
		forbidden = errors.As(err, &failure) && apierrors.IsForbidden(failure.Cause)
		return failure != nil || httpstream.IsHTTPSProxyError(err)
	})
	connection, _, err := dialer.Dial(portforward.PortForwardProtocolV1Name)
	switch {
	case err != nil && forbidden:
		return nil, t.missing
	case err != nil:
		return nil, fmt.Errorf("port-forward to the operator: %w", err)
	}
	stream, err := newPodStream(connection, t.port)
	if err != nil {
		_ = connection.Close()
	}
	return stream, err
}

// podStream is a connection to a port of a pod.
type podStream struct {
	httpstream.Stream
	connection httpstream.Connection
	// failure receives the error of the pod's side, and is closed when there is none.
	failure chan error
}

func newPodStream(connection httpstream.Connection, port int32) (*podStream, error) {
	headers := http.Header{}
	headers.Set(corev1.PortHeader, strconv.Itoa(int(port)))
	headers.Set(corev1.PortForwardRequestIDHeader, "0")
	headers.Set(corev1.StreamType, corev1.StreamTypeError)
	errorStream, err := connection.CreateStream(headers)
	if err != nil {
		return nil, err
	}
	_ = errorStream.Close() // nothing is written
	headers.Set(corev1.StreamType, corev1.StreamTypeData)
	data, err := connection.CreateStream(headers)
	if err != nil {
		return nil, err
	}
	s := &podStream{Stream: data, connection: connection, failure: make(chan error, 1)}
	go func() {
		defer close(s.failure)
		if text, _ := io.ReadAll(io.LimitReader(errorStream, 500)); len(text) > 0 { // the connection's end is no failure of the pod
			s.failure <- errors.New(strings.TrimSpace(string(text)))
			_ = data.Reset()
		}
	}()
	return s, nil
}

// Read implements net.Conn. At the end of the stream, it returns the error of the pod's side.
func (s *podStream) Read(p []byte) (int, error) {
	n, err := s.Stream.Read(p)
	if n == 0 && err != nil {
		select {
		case failure, ok := <-s.failure:
			if ok {
				return 0, failure
			}
		case <-time.After(time.Second):
		}
	}
	return n, err
}

// Close implements net.Conn.
func (s *podStream) Close() error { return s.connection.Close() }

// Addresses and deadlines are unknown to a stream: http.Client closes the connection at its
// timeout.

func (s *podStream) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (s *podStream) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (s *podStream) SetDeadline(time.Time) error      { return nil }
func (s *podStream) SetReadDeadline(time.Time) error  { return nil }
func (s *podStream) SetWriteDeadline(time.Time) error { return nil }
