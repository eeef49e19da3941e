// Package grpcbody reads the bodies of gRPC calls: the frames that they consist of, the messages of vLLM's own service,
// and the bodies that calls to Vertex wrap. It owns the numbers of their fields.
//
// Of a request there is the whole body, and its message is read in one pass over its fields. A response is read piece
// by piece, whatever the pieces. A message that is compressed, or is no message, says nothing. The package never keeps
// a slice of a body, and does not know what a prompt is.
//
// The service is vllm.grpc.engine.VllmEngine of vllm/grpc/vllm_engine.proto in vLLM. The calls to Vertex are those of
// google.cloud.aiplatform.v1 and v1beta1 PredictionService, whose requests and answers carry a google.api.HttpBody.
package grpcbody
