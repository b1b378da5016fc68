// The rules, alerts and dashboards of Plimsoll as a Prometheus mixin. Without a change of
// _config it has the rules of rules/ and the dashboards of dashboards/ unchanged.
//
//   local plimsoll = (import 'plimsoll/config/prometheus/mixin.libsonnet') + {
//     _config+:: { clusterLabel: 'k8s_cluster', thresholds+: { stragglerRatio: 0.85 } },
//   };
//   plimsoll.prometheusAlerts
local rewrite = import 'mixin-rewrite.libsonnet';
local groupsOf(text) = std.parseYaml(text).groups;

{
  _config:: {
    // Whether to include the rules of workers, of the hub, and over all clusters. One
    // Prometheus or Thanos Ruler with the series of all clusters needs all of them.
    worker: true,
    hub: true,
    fleet: true,

    // Label with the name of the cluster, which Thanos or remote write adds. The operator's own
    // label cluster, with the name of the ManagedCluster, keeps its name. Dashboards show alerts
    // with either label.
    clusterLabel: 'cluster',

    // Matchers for the metrics with a prefix, for example 'job="kube-state-metrics"' for kube_.
    selectors: {
      kube_: '',
      kueue_: '',
      plimsoll_: '',
      DCGM_FI_: '',
    },

    // Keys of taints that do not make a node unusable.
    toleratedTaints: [
      rule.labels.key
      for rule in groupsOf(importstr '../../rules/recording-nodes.yaml')[0].rules
      if rule.record == 'plimsoll:tolerated_taint:info'
    ],

    // This share of the workloads of a ClusterQueue is to be admitted within this time. The time
    // must be a bucket of kueue_admission_wait_time_seconds: 320, 640, 1280 and so on. The share must
    // be above 5/6, since the warning compares the share of late starts with six times the rest.
    objective: { share: 0.9, seconds: 640 },

    thresholds: {
      capacityLowRatio: 0.05,  // PlimsollCapacityLow: share of free devices
      demandPeakRatio: 0.7,  // PlimsollDemandExceedsCapacity: least peak, relative to usable devices
      idleSeconds: 1800,  // PlimsollDevicesIdle
      idleUtilization: 0.01,  // below it, a device is idle
      namespaceIdleHours: 100,  // PlimsollNamespaceIdle
      namespaceIdleRatio: 0.5,  // PlimsollNamespaceIdle: share of the device-hours
      correctableErrors: 100,  // PlimsollDeviceCorrectableECC: errors within an hour
      throttledRatio: 0.05,  // PlimsollDeviceThrottled: share of the time
      nvlinkErrors: 10,  // PlimsollNVLinkErrors: errors within an hour
      stragglerRatio: 0.9,  // PlimsollDeviceStraggler: relative to the median of the job
      interferenceUtilization: 0.7,  // PlimsollDeviceInterference
      tpuStalledSeconds: 600,  // PlimsollTPUStalled
      gateWaitSeconds: 1800,  // PlimsollGateBlocking
      mispredictionRatio: 0.25,  // PlimsollGateMispredicts: relative to the admitted workloads
    },

    // The address of a runbook, with the name of the alert for %s.
    runbookURL: 'https://plimsoll.dev/runbooks/%s',
  },

  local config = self._config,
  assert config.objective.share > 5 / 6 && config.objective.share <= 1 :
         'objective.share is %g: set a share above 5/6 and at most 1, or the warning PlimsollStartsLate cannot fire' % config.objective.share,
  local transform(text) = [rewrite.group(config, group) for group in groupsOf(text)],
  local worker(text) = if config.worker then transform(text) else [],
  local hub(text) = if config.hub then transform(text) else [],
  local fleet(text) = if config.fleet then transform(text) else [],

  prometheusRules+:: {
    groups+:
      worker(importstr '../../rules/recording-nodes.yaml') +
      worker(importstr '../../rules/recording-devices.yaml') +
      worker(importstr '../../rules/recording-shares.yaml') +
      worker(importstr '../../rules/recording-topology.yaml') +
      worker(importstr '../../rules/recording-owners.yaml') +
      (if config.worker || config.hub then transform(importstr '../../rules/recording-queues.yaml') else []) +
      fleet(importstr '../../rules/recording-fleet.yaml'),
  },

  prometheusAlerts+:: {
    groups+:
      worker(importstr '../../rules/alerts-capacity.yaml') +
      worker(importstr '../../rules/alerts-devices.yaml') +
      worker(importstr '../../rules/alerts-pipeline.yaml') +
      transform(importstr '../../rules/alerts-prometheus.yaml') +
      hub(importstr '../../rules/alerts-hub.yaml'),
  },

  local dashboards = {
    'admission.json': import '../../dashboards/admission.json',
    'devices.json': import '../../dashboards/devices.json',
    'fleet.json': import '../../dashboards/fleet.json',
    'jobs.json': import '../../dashboards/jobs.json',
    'scores.json': import '../../dashboards/scores.json',
    'self.json': import '../../dashboards/self.json',
    'tpu.json': import '../../dashboards/tpu.json',
  },
  grafanaDashboards+:: std.mapWithKey(function(file, d) rewrite.dashboard(config, file, d), dashboards),
}
