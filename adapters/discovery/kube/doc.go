// Package kube tells the pool which endpoints there are, from the pods of a Kubernetes namespace: those that an
// InferencePool selects, or those that a label selector of the command line selects.
//
// It owns the watches of the API server and what they found last. While the API server is away, forbids something or
// answers nonsense, the last known set stays in force. It never writes to the API server, and it asks for nothing
// outside of its namespace.
package kube
