package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"k8s.io/client-go/rest"

	"plimsoll.dev/plimsoll/exporter/internal/podmap"
)

// claimServer is an API server with ResourceSlices and ResourceClaims.
type claimServer struct {
	*httptest.Server
	mu       sync.Mutex
	slices   []string          // as JSON
	claims   map[string]string // JSON by namespace/name
	refused  int               // status of every response; 0 for none
	requests map[string]int    // by path
}

func startClaimServer(t *testing.T) *claimServer {
	t.Helper()
	s := &claimServer{claims: map[string]string{}, requests: map[string]int{}}
	s.Server = httptest.NewServer(http.HandlerFunc(s.respond))
	t.Cleanup(s.Close)
	return s
}

func (s *claimServer) respond(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.requests[r.URL.Path]++
	list, refused := strings.Join(s.slices, ","), s.refused
	part := strings.Split(strings.TrimPrefix(r.URL.Path, "/apis/resource.k8s.io/v1/namespaces/"), "/")
	claim := s.claims[part[0]+"/"+part[len(part)-1]]
	s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	switch {
	case refused > 0:
		w.WriteHeader(refused)
		fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"message":"it is refused","code":%d}`, http.StatusText(refused), refused)
	case strings.HasSuffix(r.URL.Path, "/resourceslices") && r.URL.Query().Get("fieldSelector") != "spec.nodeName=n":
		w.WriteHeader(http.StatusBadRequest)
	case r.URL.Query().Get("sendInitialEvents") != "": // client-go lists instead
		w.WriteHeader(http.StatusUnprocessableEntity)
		fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Invalid","code":422}`)
	case r.URL.Query().Get("watch") != "":
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush() // the client has disconnected
		<-r.Context().Done()
	case strings.HasSuffix(r.URL.Path, "/resourceslices"):
		fmt.Fprintf(w, `{"kind":"ResourceSliceList","apiVersion":"resource.k8s.io/v1","metadata":{"resourceVersion":"1"},"items":[%s]}`, list)
	case claim != "":
		fmt.Fprint(w, claim)
	default:
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`)
	}
}

func (s *claimServer) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

func (s *claimServer) numberOf(path string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requests[path]
}

// allocatedClaim returns a claim with allocations of gpu-0, each given as shareID=memory=cores.
func allocatedClaim(allocations ...string) string {
	var results []map[string]any
	for _, a := range allocations {
		part := strings.Split(a, "=")
		results = append(results, map[string]any{"request": "gpu", "driver": "gpu.nvidia.com", "pool": "n", "device": "gpu-0", "shareID": part[0],
			"consumedCapacity": map[string]string{"memory": part[1], "gpu.nvidia.com/cores": part[2]}})
	}
	text, err := json.Marshal(map[string]any{"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": map[string]any{"name": "c"},
		"status": map[string]any{"allocation": map[string]any{"devices": map[string]any{"results": results}}}})
	if err != nil {
		panic(err)
	}
	return string(text)
}

func heldClaim(name, share string) podmap.Claim {
	return podmap.Claim{Name: name, Namespace: "ml", Driver: "gpu.nvidia.com", Pool: "n", Device: "gpu-0", ShareID: share}
}

// runReader runs a ClaimReader until the end of the test.
func runReader(t *testing.T, s *claimServer, log *slog.Logger) *ClaimReader {
	t.Helper()
	before := goleak.IgnoreCurrent()
	r, err := NewClaimReader(&rest.Config{Host: s.URL, QPS: -1}, "n", log)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); r.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		<-done
		// The server may accept a connection that a canceled request opened only after it closed all others.
		for end := time.Now().Add(10 * time.Second); goleak.Find(before) != nil && time.Now().Before(end); {
			s.CloseClientConnections()
		}
		goleak.VerifyNone(t, before)
	})
	return r
}

// await calls Consumption until it has the wanted result.
func await(t *testing.T, r *ClaimReader, want map[podmap.Claim]podmap.Consumption) {
	t.Helper()
	claims := make([]podmap.Claim, 0, len(want))
	for c := range want {
		claims = append(claims, c)
	}
	diff := ""
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if diff = cmp.Diff(want, r.Consumption(claims)); diff == "" {
			return
		}
	}
	t.Fatalf("(-want +got):\n%s", diff)
}

func consumes(memory, cores float64) podmap.Consumption {
	return podmap.Consumption{Amounts: map[string]float64{"memory": memory, "cores": cores}}
}

// A request that ends while its connection is being opened leaves the dial behind. The end of Run ends
// the dial.
func TestEndOfRunEndsDials(t *testing.T) {
	for name, run := range map[string]func(config *rest.Config) (func(ctx context.Context), error){
		"ClaimReader": func(config *rest.Config) (func(ctx context.Context), error) {
			r, err := NewClaimReader(config, "n", slog.New(slog.DiscardHandler))
			return r.Run, err
		},
		"Watcher": func(config *rest.Config) (func(ctx context.Context), error) {
			w, err := New(config, Options{Node: "n", Owners: true, Log: slog.New(slog.DiscardHandler)})
			return w.Run, err
		},
	} {
		t.Run(name, func(t *testing.T) {
			dialed, canceled := make(chan context.Context, 10), make(chan struct{})
			config := &rest.Config{Host: "http://192.0.2.1", QPS: -1, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
				dialed <- ctx
				select {
				case <-ctx.Done():
				case <-canceled:
				}
				return nil, errors.New("no connection")
			}}
			defer close(canceled)
			run, err := run(config)
			if err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan struct{})
			go func() { defer close(ended); run(ctx) }()
			dial := <-dialed
			stop()
			<-ended
			select {
			case <-dial.Done():
			case <-time.After(10 * time.Second):
				t.Error("the dial is still in progress after the end of Run")
			}
		})
	}
}

// Each claim is read once, by name. A claim with another share of the device is a new one of the
// same name, and is read again.
func TestClaimsAreReadOnce(t *testing.T) {
	s := startClaimServer(t)
	s.claims["ml/a"], s.claims["ml/two"] = allocatedClaim("s1=3Gi=30"), allocatedClaim("s2=1Gi=10", "s3=2Gi=20")
	r := runReader(t, s, slog.New(slog.DiscardHandler))
	for claim, c := range r.Consumption([]podmap.Claim{heldClaim("a", "s1")}) {
		if c.Unknown != podmap.ClaimPending {
			t.Errorf("%v: %+v before it was read", claim, c)
		}
	}
	await(t, r, map[podmap.Claim]podmap.Consumption{
		heldClaim("a", "s1"): consumes(3<<30, 30), heldClaim("two", "s2"): consumes(1<<30, 10), heldClaim("two", "s3"): consumes(2<<30, 20),
		heldClaim("two", ""): consumes(3<<30, 30), // a kubelet that reports no share
	})
	const path = "/apis/resource.k8s.io/v1/namespaces/ml/resourceclaims/a"
	if n := s.numberOf(path); n != 1 {
		t.Errorf("claim a was read %d times", n)
	}
	s.set(func() { s.claims["ml/a"] = allocatedClaim("s9=5Gi=50") })
	await(t, r, map[podmap.Claim]podmap.Consumption{heldClaim("a", "s9"): consumes(5<<30, 50)})
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := len(r.claims); n != 1 {
		t.Errorf("%d claims are kept, want the one that a pod holds", n)
	}
}

// Whatever a claim says, its consumption is either known or has a reason why not.
func TestUnknownConsumption(t *testing.T) {
	admin := strings.Replace(allocatedClaim("s1=1=1"), `"driver"`, `"adminAccess":true,"driver"`, 1)
	for name, tc := range map[string]struct {
		claim   string
		refused int
		want    podmap.Consumption
	}{
		"not found":             {"", 0, podmap.Consumption{Unknown: podmap.ClaimNotFound}},
		"forbidden":             {allocatedClaim("s1=1=1"), http.StatusForbidden, podmap.Consumption{Unknown: podmap.ClaimForbidden}},
		"an error":              {allocatedClaim("s1=1=1"), http.StatusInternalServerError, podmap.Consumption{Unknown: podmap.ClaimUnreachable}},
		"not allocated":         {`{"apiVersion":"resource.k8s.io/v1","kind":"ResourceClaim","metadata":{"name":"c"}}`, 0, podmap.Consumption{Unknown: podmap.ClaimInvalid}},
		"another share":         {allocatedClaim("s2=1=1"), 0, podmap.Consumption{Unknown: podmap.ClaimInvalid}},
		"another device":        {strings.ReplaceAll(allocatedClaim("s1=1=1"), "gpu-0", "gpu-1"), 0, podmap.Consumption{Unknown: podmap.ClaimInvalid}},
		"another driver":        {strings.ReplaceAll(allocatedClaim("s1=1=1"), `"driver":"gpu.nvidia.com"`, `"driver":"other"`), 0, podmap.Consumption{Unknown: podmap.ClaimInvalid}},
		"negative":              {allocatedClaim("s1=-1=1"), 0, podmap.Consumption{Unknown: podmap.ClaimInvalid}},
		"no quantity":           {allocatedClaim("s1=NaN=1"), 0, podmap.Consumption{Unknown: podmap.ClaimInvalid}},
		"no object":             {`{"apiVersion":"resource.k8s.io/v1","kind":"ResourceClaim","metadata":{"name":"c"},"status":[]}`, 0, podmap.Consumption{Unknown: podmap.ClaimInvalid}},
		"admin access":          {admin, 0, podmap.Consumption{Amounts: map[string]float64{}, AdminAccess: true}},
		"more than int64 bytes": {allocatedClaim("s1=99999999999999999999=1"), 0, consumes(99999999999999999999, 1)},
	} {
		t.Run(name, func(t *testing.T) {
			s := startClaimServer(t)
			s.claims["ml/a"], s.refused = tc.claim, tc.refused
			maps.DeleteFunc(s.claims, func(_, text string) bool { return text == "" })
			await(t, runReader(t, s, slog.New(slog.DiscardHandler)), map[podmap.Claim]podmap.Consumption{heldClaim("a", "s1"): tc.want})
		})
	}
}

// A permission that is missing is logged once for all claims, and read again when it is granted.
func TestMissingPermissionForClaims(t *testing.T) {
	s := startClaimServer(t)
	s.refused = http.StatusForbidden
	lines := make(logLines, 100)
	r := runReader(t, s, slog.New(slog.NewTextHandler(lines, nil)))
	want := map[podmap.Claim]podmap.Consumption{}
	for i := range 50 {
		want[heldClaim(fmt.Sprint("c", i), "s1")] = podmap.Consumption{Unknown: podmap.ClaimForbidden}
	}
	await(t, r, want)
	if _, ok := r.Devices(); ok || r.Reachable() {
		t.Error("the devices are known without permission")
	}
	logged := map[string]int{}
	for len(lines) > 0 {
		line := <-lines
		logged[strings.Split(strings.SplitN(line, "msg=", 2)[1], ";")[0]]++
	}
	if logged[`"cannot read a resource claim`] != 1 || logged[`"cannot list or watch the node's ResourceSlices`] != 1 || len(logged) != 2 {
		t.Errorf("the log has %v", logged)
	}
	s.set(func() {
		s.refused = 0
		for c := range want {
			s.claims["ml/"+c.Name] = allocatedClaim("s1=1Gi=5")
			want[c] = consumes(1<<30, 5)
		}
	})
	await(t, r, want)
}

// One claim that cannot be read is logged once, however many others are read. The others are no sign
// that it can be read again.
func TestOneMissingClaimAmongOthers(t *testing.T) {
	s := startClaimServer(t)
	lines := make(logLines, 100)
	r := runReader(t, s, slog.New(slog.NewTextHandler(lines, nil)))
	want := map[podmap.Claim]podmap.Consumption{heldClaim("missing", "s1"): {Unknown: podmap.ClaimNotFound}}
	await(t, r, want)
	for i := range 5 {
		name := fmt.Sprint("c", i)
		s.set(func() { s.claims["ml/"+name] = allocatedClaim("s1=1Gi=5") })
		want[heldClaim(name, "s1")] = consumes(1<<30, 5)
		await(t, r, want)
	}
	requireLevels(t, lines, "level=WARN")
	s.set(func() { s.claims["ml/missing"] = allocatedClaim("s1=1Gi=5") })
	want[heldClaim("missing", "s1")] = consumes(1<<30, 5)
	await(t, r, want)
	requireLevels(t, lines, "level=INFO")
}

// requireLevels checks the levels of the lines about resource claims that were logged since the last
// call.
func requireLevels(t *testing.T, lines logLines, want string) {
	t.Helper()
	var levels []string
	for len(lines) > 0 {
		if line := <-lines; strings.Contains(line, "resource claim") {
			levels = append(levels, line[strings.Index(line, "level="):strings.Index(line, " msg=")])
		}
	}
	if got := strings.Join(levels, " "); got != want {
		t.Errorf("the log has %s, want %s", got, want)
	}
}
