package audit

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// Permission is one verb on one resource.
type Permission struct {
	// Group is the API group; empty for the core group.
	Group string
	// Resource is the resource, with its subresource after a slash.
	Resource string
	Verb     string
}

func (p Permission) String() string {
	resource := p.Resource
	if p.Group != "" {
		resource = p.Group + "/" + p.Resource
	}
	return p.Verb + " " + resource
}

// Annotations of audit events, and the prefix of the names of the guard's policies.
const (
	decisionAnnotation = "authorization.k8s.io/decision"
	guardPrefix        = "plimsoll-guard"
)

// addPermission records which permission the request used, or that it was refused by a
// role or the guard.
func (l *Log) addPermission(e *event) {
	if e.Object.Resource == "" { // for example discovery or /healthz
		return
	}
	p := Permission{Group: e.Object.APIGroup, Resource: e.Object.Resource, Verb: e.Verb}
	if e.Object.Subresource != "" {
		p.Resource += "/" + e.Object.Subresource
	}
	user := e.User.Username
	if e.Annotations[decisionAnnotation] == "forbid" || strings.Contains(e.ResponseStatus.Message, guardPrefix) {
		l.denied[user] = append(l.denied[user], fmt.Sprintf("%s %s at %s: %s", p, e.objectName(), e.At.Format("15:04:05.000"), e.ResponseStatus.Message))
		return
	}
	if l.granted[user] == nil {
		l.granted[user] = map[Permission]bool{}
	}
	l.granted[user][p] = true
}

// Denied returns the requests of a user that a role or the guard refused, in the order of
// the log.
func (l *Log) Denied(user string) []string { return l.denied[user] }

// Unused returns the permissions that no request of the user used, in the order of granted. A
// list counts as used if the watch is: the client lists only if the API server cannot send the
// existing objects with the watch.
func (l *Log) Unused(user string, granted []Permission) []Permission {
	var unused []Permission
	for _, p := range granted {
		watch := Permission{Group: p.Group, Resource: p.Resource, Verb: "watch"}
		isUsed := l.granted[user][p] || p.Verb == "list" && l.granted[user][watch]
		if !isUsed {
			unused = append(unused, p)
		}
	}
	return unused
}

// CheckReasons returns a sentence for each unused permission without a reason, and for each
// reason of a permission that is not granted. The keys of reasons are those of
// Permission.String.
func CheckReasons(granted, unused []Permission, reasons map[string]string) []string {
	var problems []string
	for _, p := range unused {
		if reasons[p.String()] == "" {
			problems = append(problems, p.String()+" is granted, and no request used it: remove it from the roles, or state why the tests do not use it")
		}
	}
	for _, key := range slices.Sorted(maps.Keys(reasons)) {
		if !slices.ContainsFunc(granted, func(p Permission) bool { return p.String() == key }) {
			problems = append(problems, key+" has a reason for being unused, and no role grants it: remove the reason")
		}
	}
	return problems
}

// ReadPermissions returns the permissions that the roles in the files grant, sorted and
// without duplicates.
func ReadPermissions(files ...string) ([]Permission, error) {
	var all []Permission
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
		for {
			var role rbacv1.ClusterRole // a Role has the same field
			err := decoder.Decode(&role)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
			all = append(all, permissionsOf(role.Rules)...)
		}
	}
	slices.SortFunc(all, func(a, b Permission) int { return strings.Compare(a.String(), b.String()) })
	return slices.Compact(all), nil
}

func permissionsOf(rules []rbacv1.PolicyRule) []Permission {
	var all []Permission
	for _, rule := range rules {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					all = append(all, Permission{group, resource, verb})
				}
			}
		}
	}
	return all
}
