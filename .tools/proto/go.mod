module plimsoll.dev/plimsoll/tools/proto

go 1.26.0

require (
	github.com/bufbuild/protocompile v0.14.1
	google.golang.org/protobuf v1.36.12-0.20260120151049-f2248ac996af
)

require golang.org/x/sync v0.8.0 // indirect
