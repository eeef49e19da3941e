// Package policybench plays traces of real requests to policies that pick a server, in virtual time, and holds the
// policies against each other. The product's policies run in the picker that the command serves with; others are rules
// of a few lines beside it, among them oracles that know what no picker can know.
//
// The model servers are models: their steps, batches and caches are those of vLLM, what a step takes is a formula of
// what it computes. No network, no clock of the machine and no process of another has an effect on a result. Equal
// seeds give equal results.
package policybench
