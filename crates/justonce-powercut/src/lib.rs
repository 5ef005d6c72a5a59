//! The power cut test of the embedded store.
//!
//! `kill -9` is not a power cut: what a process has written outlives it in the memory of the
//! kernel, whether it was synced or not. Here nothing outlives the cut but what was synced, and as
//! much of the rest as chance wants.
//!
//! 1. A [worker](workload) works on a store and says on its standard output what it is about to
//!    try, and what the store has acknowledged.
//! 2. `strace` [records](strace) what the process asks of the file system, the storage engine's own
//!    calls and these lines among it, in the order in which they began and ended.
//! 3. A [model of a disk](disk) goes through the recording. It knows of every file and directory
//!    what is durable and what was asked for since.
//! 4. At many points it is [cut]: of what is not durable each part is kept, lost or torn.
//! 5. Each state is written to a directory, [opened and compared](check) with what had been
//!    acknowledged until then ([history]).
//!
//! What the model takes for possible: an unsynced write may be lost, whole or by sectors,
//! independently of all others; a file may have grown without the contents that made it grow. A
//! directory may lose its last unsynced changes, however its files were synced; each directory for
//! itself. A rename over another name is atomic. A sync counts when it has returned, for what had
//! returned before it began.
//!
//! A [restore](restored) is recorded, cut and checked in the same way.
//!
//! A check that cannot fail shows nothing, so there are [mutants]: syncs that are left out of the
//! recording, and changed sources.

pub mod calls;
pub mod check;
pub mod cut;
pub mod disk;
pub mod history;
pub mod mutants;
pub mod random;
pub mod record;
pub mod restored;
pub mod run;
pub mod scratch;
pub mod strace;
pub mod tree;
pub mod workload;
