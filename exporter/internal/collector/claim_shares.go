package collector

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"plimsoll.dev/plimsoll/exporter/internal/podmap"
)

// providerDRA is the provider of shares that resource claims consume.
const providerDRA = "dra"

// wholeCores is the capacity of cores of a device whose driver counts hundredths.
const wholeCores = 100

// Claims knows the devices that several resource claims can allocate, and what claims consume.
type Claims interface {
	// Devices returns these devices. ok is false while they are unknown.
	Devices() (devices []podmap.SharedDevice, ok bool)
	// Consumption returns what each claim consumes of its device.
	Consumption(claims []podmap.Claim) map[podmap.Claim]podmap.Consumption
	// Reachable reports whether the last request for the devices succeeded.
	Reachable() bool
}

// claimShares is what is known of the shares of claims.
type claimShares struct {
	reachable   bool
	devices     map[string][]podmap.SharedDevice // by name of the device
	consumption map[podmap.Claim]podmap.Consumption
}

// lookUpClaims returns the shares of claims, or nil if the API server is not queried. Without the
// kubelet, or without the ResourceSlices, no device has shares.
func (c *Collector) lookUpClaims(pods podmap.Map, podsErr error) *claimShares {
	if c.cfg.Claims == nil {
		return nil
	}
	s := &claimShares{reachable: c.cfg.Claims.Reachable()}
	devices, ok := c.cfg.Claims.Devices()
	if !ok || podsErr != nil {
		return s
	}
	s.devices = map[string][]podmap.SharedDevice{}
	var claims []podmap.Claim
	for _, d := range devices {
		name, ok := podmap.DeviceName(d.Driver, d.Device)
		if !ok {
			continue // no source lists the devices of this driver
		}
		s.devices[name] = append(s.devices[name], d)
		for _, held := range pods.Claims[name] {
			claims = append(claims, held.Claim)
		}
	}
	s.consumption = c.cfg.Claims.Consumption(claims)
	s.markIncomplete()
	return s
}

// markIncomplete makes the consumption unknown that lacks a capacity of its device. kube-scheduler
// records all of them, but a driver may have added one since.
func (s *claimShares) markIncomplete() {
	for c, consumed := range s.consumption {
		name, _ := podmap.DeviceName(c.Driver, c.Device)
		for _, d := range s.devices[name] {
			if d.Driver == c.Driver && d.Pool == c.Pool && consumed.Unknown == "" && !hasCapacitiesOf(consumed, d) {
				s.consumption[c] = podmap.Consumption{Unknown: podmap.ClaimInvalid}
			}
		}
	}
}

func hasCapacitiesOf(c podmap.Consumption, d podmap.SharedDevice) bool {
	for name := range d.Capacities {
		if _, ok := c.Amounts[name]; !ok && !c.AdminAccess {
			return false
		}
	}
	return true
}

// renderClaimShares writes what a device offers to several claims and what they consume of it. It
// writes nothing if a claim's consumption is unknown, or if the device is also allocated in another
// way: a sum without that part would be too small.
func (r *renderer) renderClaimShares(d *deviceSnapshot, id labelText) {
	of, claims, ok := r.claimsOn(d)
	if !ok {
		return
	}
	amounts := r.claimAmounts(of, claims)
	if amounts == nil {
		return
	}
	withSeries := podsWithSeries([]*deviceSnapshot{d})
	for _, a := range amounts {
		r.addAmount(id, providerDRA, a, withSeries)
	}
	r.renderPolicy(id, of)
}

// claimsOn returns the shared device that a device is, and the claims on it. ok is false if it is
// none, if two drivers offer it, if it is also allocated in another way, if it may have MIG
// instances, whose memory is then that of the device, or while the kubelet lists a claim without its
// devices, which may be on it.
func (r *renderer) claimsOn(d *deviceSnapshot) (of podmap.SharedDevice, claims []podmap.HeldClaim, ok bool) {
	if r.snapshot.claims == nil || d.mayBePartitioned() || len(r.snapshot.pods.Unprepared) > 0 {
		return of, nil, false
	}
	pods, found := r.snapshot.pods, 0
	isClaimed := map[podmap.Holder]bool{}
	for _, name := range d.device.Names() {
		for _, offered := range r.snapshot.claims.devices[name] {
			of = offered
			found++
		}
		claims = append(claims, pods.Claims[name]...)
		if resource, isAllocated := pods.Allocated[name]; isAllocated && resource != "" {
			return of, nil, false // by a device plugin
		}
	}
	for _, held := range claims {
		isClaimed[held.Holder] = true
		if c := held.Claim; c.Driver != of.Driver || c.Pool != of.Pool || c.Device != of.Device {
			return of, nil, false
		}
	}
	for _, h := range d.allHolders {
		if !isClaimed[h] {
			return of, nil, false
		}
	}
	return of, claims, found == 1 && (len(claims) > 0 || !d.allocated)
}

// claimAmounts returns the amounts of each dimension, or nil if a claim's consumption is unknown. A
// claim of several pods counts once for the device, and as a whole for each pod.
func (r *renderer) claimAmounts(of podmap.SharedDevice, claims []podmap.HeldClaim) []amount {
	used := map[string]float64{}
	counted, shares := map[podmap.Claim]bool{}, amount{dimension: dimensionShares, pods: map[podName]float64{}}
	memory := amount{dimensionMemory, of.Capacities[podmap.CapacityMemory].Value, 0, map[podName]float64{}}
	cores := amount{dimensionCores, 1, 0, map[podName]float64{}}
	ofPod := map[podName]map[podmap.Claim]bool{}
	for _, held := range claims {
		consumed := r.snapshot.claims.consumption[held.Claim]
		if consumed.Unknown != "" {
			return nil
		}
		if consumed.AdminAccess {
			continue
		}
		if !counted[held.Claim] {
			counted[held.Claim] = true
			shares.allocated++
			for name, v := range consumed.Amounts {
				used[name] += v
			}
		}
		pod := podName{held.Namespace, held.Pod}
		if ofPod[pod] == nil {
			ofPod[pod] = map[podmap.Claim]bool{}
		}
		if ofPod[pod][held.Claim] {
			continue // two containers of the pod have the claim
		}
		ofPod[pod][held.Claim] = true
		shares.pods[pod]++
		memory.addToPod(pod, consumed.Amounts[podmap.CapacityMemory])
		cores.addToPod(pod, consumed.Amounts[podmap.CapacityCores]/wholeCores)
	}
	memory.allocated = min(used[podmap.CapacityMemory], memory.capacity)
	cores.allocated = min(used[podmap.CapacityCores]/wholeCores, 1)
	var amounts []amount
	if free, isLimited := furtherClaims(of, used); isLimited {
		shares.capacity = shares.allocated + free
		amounts = append(amounts, shares)
	}
	if memory.capacity > 0 {
		amounts = append(amounts, memory)
	}
	if of.Capacities[podmap.CapacityCores].Value == wholeCores {
		amounts = append(amounts, cores)
	}
	return amounts
}

// furtherClaims returns how many more claims a device takes for its capacities other than memory and
// cores, of which each consumes the default. isLimited is false if it has none.
func furtherClaims(of podmap.SharedDevice, used map[string]float64) (n float64, isLimited bool) {
	n = math.Inf(1)
	for name, c := range of.Capacities {
		if name == podmap.CapacityMemory || name == podmap.CapacityCores && c.Value == wholeCores || c.Default == 0 {
			continue
		}
		n = min(n, math.Floor(max(c.Value-used[name], 0)/c.Default))
	}
	return n, !math.IsInf(n, 1)
}

// renderPolicy writes what requests of memory and cores are rounded to.
func (r *renderer) renderPolicy(id labelText, of podmap.SharedDevice) {
	for _, row := range []struct {
		name, dimension string
		unit            float64
	}{{podmap.CapacityMemory, dimensionMemory, 1}, {podmap.CapacityCores, dimensionCores, 1. / wholeCores}} {
		c, ok := of.Capacities[row.name]
		if !ok || row.dimension == dimensionCores && c.Value != wholeCores {
			continue
		}
		bounds := map[string]float64{"default": c.Default}
		if len(c.Values) == 0 {
			bounds["min"], bounds["max"], bounds["step"] = c.Min, c.Max, c.Step
		}
		for i, v := range c.Values {
			bounds[fmt.Sprintf("value%d", i)] = v
		}
		for _, bound := range slices.Sorted(maps.Keys(bounds)) {
			r.families.addOfDevice(sharePolicy, bounds[bound]*row.unit, id, providerDRA, row.dimension, bound)
		}
	}
}

// renderClaims writes how many claims are unknown, by reason.
func (r *renderer) renderClaims() {
	s := r.snapshot.claims
	if s == nil {
		return
	}
	r.families.add(slicesReachable, boolValue(s.reachable), r.node)
	unknown := map[string]float64{}
	for _, c := range s.consumption {
		unknown[c.Unknown]++
	}
	for _, reason := range podmap.UnknownClaimReasons {
		r.families.add(unknownClaims, unknown[reason], r.node, reason)
	}
}
