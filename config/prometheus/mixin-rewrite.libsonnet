// Changes of rules and dashboards by the settings of mixin.libsonnet. Each change replaces an exact text,
// and fails if the text is not there: a rule that changes must not lose its setting silently.
local identifier = std.set(std.stringChars('abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_:'));
local isIdentifier(c) = std.length(c) > 0 && std.setMember(c, identifier);
local last(s) = if s == '' then '' else s[std.length(s) - 1];
local number(n) = '%g' % n;
local percent(n) = number(std.round(n * 1000) / 10) + '%';

// contains and nameLength use split, since findSubstr and loops over characters are slow.
local contains(text, part) = std.length(std.split(text, part)) > 1;

// nameLength returns the length of the name of a metric at the start of a query.
local nameLength(query) = std.foldl(function(length, end) std.min(length, std.length(std.split(query, end)[0])), ['{', '[', '(', ')', ' ', ',', '\n', '"', '-', '.'], std.length(query));

// replaceWord replaces a label name in a query. It leaves series names, variables and longer names.
local replaceWord(text, word, new) =
  local parts = std.split(text, word);
  std.foldl(
    function(done, part)
      local isPart = isIdentifier(last(done)) || last(done) == '$' || isIdentifier(if part == '' then '' else part[0]);
      done + (if isPart then word else new) + part,
    parts[1:],
    parts[0]
  );

// addMatchers adds matchers to the selectors of all metrics with a prefix.
local addMatchers(text, prefix, matchers) =
  local parts = std.split(text, prefix);
  std.foldl(
    function(done, part)
      local length = nameLength(part);
      local name = part[:length], rest = part[length:];
      done + prefix + (
        if isIdentifier(last(done)) || name == '' || last(done) == '"' then part
        else if std.startsWith(rest, '{}') then name + '{' + matchers + rest[1:]
        else if std.startsWith(rest, '{') then name + '{' + matchers + ',' + rest[1:]
        else name + '{' + matchers + '}' + rest
      ),
    parts[1:],
    parts[0]
  );

// The label cluster of these metrics is the name of a ManagedCluster.
local hasOperatorsCluster(query) = contains(query, 'plimsoll_gate_') || contains(query, 'plimsoll_score');

local query(config, text) =
  local selected = std.foldl(
    function(text, prefix) if config.selectors[prefix] == '' then text else addMatchers(text, prefix, config.selectors[prefix]),
    std.objectFields(config.selectors),
    text
  );
  if config.clusterLabel == 'cluster' || hasOperatorsCluster(text) then selected else replaceWord(selected, 'cluster', config.clusterLabel);

// These alerts have no label of the cluster, or the operator's label cluster.
local operatorsAlerts = std.set([
  rule.alert
  for group in std.parseYaml(importstr '../../rules/alerts-hub.yaml').groups
  for rule in group.rules
  if hasOperatorsCluster(rule.expr)
]);

// boardQuery rewrites a query of a dashboard. Alerts about a ManagedCluster get its name as the
// cluster label: otherwise a dashboard of one cluster would hide them.
local boardQuery(config, text) =
  local parts = std.split(text, 'ALERTS{');
  if config.clusterLabel == 'cluster' || std.length(parts) == 1 then query(config, text)
  else std.foldl(
    function(done, part)
      local matchers = std.split(part, '}')[0], rest = part[std.length(matchers) + 1:];
      local names = std.join('|', operatorsAlerts);
      done + '(ALERTS{' + replaceWord(matchers, 'cluster', config.clusterLabel) + ',alertname!~"' + names + '"} or label_replace(ALERTS{' + matchers +
      ',alertname=~"' + names + '"}, "' + config.clusterLabel + '", "$1", "cluster", "(.*)"))' + query(config, rest),
    parts[1:],
    query(config, parts[0])
  );

// lateShare returns the share of workloads that may start late.
local lateShare(config) = std.parseJson(number(1 - config.objective.share));

// replacements lists the texts of a rule that settings change, with the new texts.
local replacements(config) =
  local t = config.thresholds, o = config.objective;
  local late = lateShare(config);
  {
    PlimsollCapacityLow: [['< 0.05', '< ' + number(t.capacityLowRatio)]],
    PlimsollDemandExceedsCapacity: [['> 0.7 *', '> ' + number(t.demandPeakRatio) + ' *']],
    PlimsollDevicesIdle: [['for 30 minutes', 'for ' + number(t.idleSeconds / 60) + ' minutes'], ['less than 1%', 'less than ' + percent(t.idleUtilization)]],
    PlimsollNamespaceIdle: [['> 100', '> ' + number(t.namespaceIdleHours)], ['> 0.5', '> ' + number(t.namespaceIdleRatio)], ['less than 1%', 'less than ' + percent(t.idleUtilization)], ['more than half', if t.namespaceIdleRatio == 0.5 then 'more than half' else 'more than ' + percent(t.namespaceIdleRatio)]],
    PlimsollDeviceCorrectableECC: [['> 100', '> ' + number(t.correctableErrors)]],
    PlimsollDeviceThrottled: [['> 0.05', '> ' + number(t.throttledRatio)]],
    PlimsollNVLinkErrors: [['> 10', '> ' + number(t.nvlinkErrors)]],
    PlimsollDeviceStraggler: [['< 0.9', '< ' + number(t.stragglerRatio)]],
    PlimsollDeviceInterference: [['Above 70%', 'Above ' + percent(t.interferenceUtilization)]],
    PlimsollTPUStalled: [['> 600', '> ' + number(t.tpuStalledSeconds)], ['more than 10 minutes', 'more than ' + number(t.tpuStalledSeconds / 60) + ' minutes']],
    PlimsollGateBlocking: [['> 1800', '> ' + number(t.gateWaitSeconds)]],
    PlimsollGateMispredicts: [['0.25 *', number(t.mispredictionRatio) + ' *']],
    PlimsollStartsLate: [['0.1', number(late)], ['longer than 640 s', 'longer than ' + number(o.seconds) + ' s'], ['objective is 10%', 'objective is ' + percent(late)]],
    'device:plimsoll_idle_since_timestamp_seconds:min': [['< 0.01', '< ' + number(t.idleUtilization)]],
    'namespace:plimsoll_idle_devices:count': [['< 0.01', '< ' + number(t.idleUtilization)]],
    'owner:plimsoll_idle_devices:count': [['> 1800', '> ' + number(t.idleSeconds)]],
    'device:plimsoll_interference_exposure:bool': [['> bool 0.7', '> bool ' + number(t.interferenceUtilization)]],
    'cluster_queue:kueue_late_starts:ratio30m': [['"640(', '"' + number(o.seconds) + '(']],
    'cluster_queue:kueue_late_starts:ratio6h': [['"640(', '"' + number(o.seconds) + '(']],
    'cluster_queue:kueue_late_starts:ratio3d': [['"640(', '"' + number(o.seconds) + '(']],
  };

// panelReplacements lists what settings change in panels, by file and title: texts, and steps of
// colors. Titles, descriptions and queries have the texts.
local panelReplacements(config) =
  local t = config.thresholds, o = config.objective;
  local late = lateShare(config);
  local idleTime = ['for 30 minutes', 'for ' + number(t.idleSeconds / 60) + ' minutes'];
  local idleUtilization = ['less than 1%', 'less than ' + percent(t.idleUtilization)];
  {
    'admission.json': {
      'Longest wait': [[1800, t.gateWaitSeconds]],
      Gates: [[1800, t.gateWaitSeconds]],
      'Starts within 640 seconds': [['640 s', number(o.seconds) + ' s'], ['alerts is 10%', 'alerts is ' + percent(late)], [0.1, late]],
      'Wasted device-hours': [idleUtilization],
    },
    'devices.json': {
      Throttled: [['> 0.05', '> ' + number(t.throttledRatio)], ['more than 5%', 'more than ' + percent(t.throttledRatio)]],
      Devices: [[0.05, t.throttledRatio]],
      'Interference on shared devices': [['Above 70%', 'Above ' + percent(t.interferenceUtilization)]],
    },
    'fleet.json': { Idle: [idleTime, idleUtilization, ['> 1800', '> ' + number(t.idleSeconds)]] },
    'jobs.json': {
      'Idle devices': [idleTime, idleUtilization],
      Stragglers: [['< 0.9', '< ' + number(t.stragglerRatio)], ['below 90%', 'below ' + percent(t.stragglerRatio)]],
      'Devices of the jobs': [[0.1, std.parseJson(number(1 - t.stragglerRatio))]],
      'Device-hours of the last 7 days': [idleUtilization, [0.5, t.namespaceIdleRatio]],
    },
    'tpu.json': {
      Stalled: [['> 600', '> ' + number(t.tpuStalledSeconds)], ['for 10 minutes', 'for ' + number(t.tpuStalledSeconds / 60) + ' minutes']],
      'State of nodes': [['> bool 600', '> bool ' + number(t.tpuStalledSeconds)]],
      Chips: [[600, t.tpuStalledSeconds]],
      'Longest stall of nodes': [[600, t.tpuStalledSeconds]],
    },
  };

local replaceAll(text, pairs) = std.foldl(function(text, pair) std.strReplace(text, pair[0], pair[1]), pairs, text);

local nameOf(rule) = if std.objectHas(rule, 'alert') then rule.alert else rule.record;

local annotation(config, rule, name, text, pairs) =
  if name == 'runbook_url' then config.runbookURL % rule.alert
  else
    local labeled = if config.clusterLabel == 'cluster' || hasOperatorsCluster(rule.expr) then text else
      replaceAll(text, [['$labels.cluster ', '$labels.' + config.clusterLabel + ' '], ['$externalLabels.cluster ', '$externalLabels.' + config.clusterLabel + ' ']]);
    replaceAll(labeled, pairs);

local changeRule(config, rule) =
  local name = nameOf(rule), all = replacements(config);
  local pairs = if std.objectHas(all, name) then all[name] else [];
  local texts = rule.expr + std.join('', if std.objectHas(rule, 'annotations') then std.objectValues(rule.annotations) else []);
  local missing = [pair[0] for pair in pairs if !contains(texts, pair[0])];
  assert std.length(missing) == 0 : 'the rule ' + name + ' does not contain ' + std.join(', ', missing);
  rule {
    expr: query(config, replaceAll(rule.expr, pairs)),
    [if std.objectHas(rule, 'annotations') then 'annotations']: std.mapWithKey(function(key, text) annotation(config, rule, key, text, pairs), rule.annotations),
  };

// changePanel replaces texts, and steps of colors.
local changePanel(pairs, key, value) =
  if std.isObject(value) then
    { [name]: changePanel(pairs, if key == 'steps' then 'step of ' + name else name, value[name]) for name in std.objectFields(value) }
  else if std.isArray(value) then [changePanel(pairs, key, element) for element in value]
  else if std.isString(value) then replaceAll(value, [pair for pair in pairs if std.isString(pair[0])])
  else if key == 'step of value' then std.foldl(function(n, pair) if n == pair[0] then pair[1] else n, pairs, value)
  else value;

// changePanels makes the replacements of the panels of a file. Each must change a panel.
local changePanels(config, file, board) =
  local all = panelReplacements(config);
  local byTitle = if std.objectHas(all, file) then all[file] else {};
  local panels = std.flatMap(function(p) if p.type == 'row' then p.panels else [p], board.panels);
  local changes(pair, p) = changePanel([[pair[0], if std.isString(pair[0]) then '' else null]], '', p) != p;
  local missing = [
    title + ': ' + pair[0]
    for title in std.objectFields(byTitle)
    for pair in byTitle[title]
    if !std.any([changes(pair, p) for p in panels if p.title == title])
  ];
  assert std.length(missing) == 0 : file + ' does not contain ' + std.join(', ', missing);
  local change(p) =
    if p.type == 'row' then p { panels: [change(q) for q in p.panels] }
    else if std.objectHas(byTitle, p.title) then changePanel(byTitle[p.title], '', p)
    else p;
  board { panels: [change(p) for p in board.panels] };

local toleratedTaint = 'plimsoll:tolerated_taint:info';

// change rewrites the queries of a dashboard, and the fields of tables with the cluster.
local change(config, key, value, isOperators) =
  local label = config.clusterLabel;
  if std.isObject(value) then
    local operators = isOperators || std.objectHas(value, 'targets') && hasOperatorsCluster(std.manifestJsonMinified(value.targets));
    {
      [if name == 'cluster' && !operators then label else name]: change(config, name, value[name], operators)
      for name in std.objectFields(value)
    }
  else if std.isArray(value) then [change(config, key, element, isOperators) for element in value]
  else if !std.isString(value) then value
  else if std.member(['expr', 'query', 'definition'], key) then boardQuery(config, value)
  else if isOperators then value
  else if key == 'options' && value == 'cluster' then label
  else replaceAll(value, [['{{cluster}}', '{{' + label + '}}'], ['fields.cluster}', 'fields.' + label + '}'], ['labels.cluster}', 'labels.' + label + '}']]);

{
  group(config, group)::
    local taints = [rule for rule in group.rules if nameOf(rule) == toleratedTaint];
    local others = [changeRule(config, rule) for rule in group.rules if nameOf(rule) != toleratedTaint];
    group { rules: (if std.length(taints) == 0 then [] else [taints[0] { labels: { key: key } } for key in config.toleratedTaints]) + others },

  dashboard(config, file, dashboard)::
    local changed = changePanels(config, file, dashboard);
    local isRenamed = config.clusterLabel != 'cluster' || std.any([config.selectors[prefix] != '' for prefix in std.objectFields(config.selectors)]);
    if isRenamed then change(config, '', changed, false) else changed,
}
