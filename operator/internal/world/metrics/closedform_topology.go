package metrics

// levelDomain is the domain of a node at a level of a topology.
type levelDomain struct{ level, domain string }

// labelLevels are the levels whose domains the rules take from labels of nodes.
var labelLevels = []string{"topology.kubernetes.io/zone", "cloud.google.com/gce-topology-block"}

// domainsOf are the domains of a node in node:plimsoll_topology:info. Nodes of a Snapshot have no NVLink fabrics.
func domainsOf(n *Node) []levelDomain {
	list := []levelDomain{{"cluster", "all"}, {"kubernetes.io/hostname", n.Name}}
	for _, level := range labelLevels {
		if domain := n.Labels[level]; domain != "" {
			list = append(list, levelDomain{level, domain})
		}
	}
	return list
}
