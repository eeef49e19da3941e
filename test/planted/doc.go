// Package planted proves that the simulation, the chaos run and the tests of contracts notice faults: it has the go
// command build them over faulty source, and sees them fail for the right reason. It owns the tables of faults, their
// overlays and the runs. It never changes a file of the module. What the build tags of the simulation plant stands in
// test/sim, which it wraps.
//
// Building takes far longer than most runs. So all faults that lie within one function each are built together, behind
// switches, and the environment of a run says which fault acts. With none of them acting, all tests must pass.
//
// The go command cannot see what the runs depend on, and would call an old result new: always say -count=1.
//
//	go test -count=1 ./test/planted                    all faults
//	go test -count=1 -run '^TestSim' ./test/planted    those of the simulation; TestChaos: those of the chaos run;
//	                                                   TestContracts: those of what plugins and files rely on
package planted
