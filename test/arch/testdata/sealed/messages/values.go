package messages

// Subset is a value; nobody has to carry it, as no actor receives what stands here.
type Subset struct{ All bool }
