package scorers

// KVCacheUtilization prefers free memory.
type KVCacheUtilization struct{}

// Run does nothing.
func (KVCacheUtilization) Run() {}
