module plimsoll.dev/plimsoll/tools/mixin

go 1.26.0

require (
	github.com/google/go-cmp v0.7.0
	github.com/google/go-jsonnet v0.22.0
	sigs.k8s.io/yaml v1.6.0
)

require (
	go.yaml.in/yaml/v2 v2.4.2 // indirect
	golang.org/x/crypto v0.45.0 // indirect
	golang.org/x/sys v0.38.0 // indirect
)
