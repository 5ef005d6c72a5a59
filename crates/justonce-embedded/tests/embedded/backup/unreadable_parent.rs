//! Above the directory lies one that may be entered and written, but not read.

use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use justonce_core::{Engine, Key, Operation, Outcome, Ran, Scope};
use justonce_embedded::EmbeddedStore;
use justonce_embedded::backup::{RestoreOptions, restore};

const NAME: &str = concat!(
    "backup::unreadable_parent::",
    "a_store_opens_is_backed_up_and_restored_where_the_parent_cannot_be_read"
);
/// Who may do everything must become somebody who may not.
const NOBODY: u32 = 65534;

#[tokio::test]
async fn a_store_opens_is_backed_up_and_restored_where_the_parent_cannot_be_read() {
    let place = tempfile::tempdir().unwrap();
    if place.path().metadata().unwrap().uid() == 0 {
        // The directories above the test program may be closed to that user.
        std::fs::set_permissions(place.path(), Permissions::from_mode(0o755)).unwrap();
        let program = place.path().join("program");
        std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
        let mut itself = Command::new(program);
        itself.args(["--exact", NAME, "--nocapture"]).current_dir(place.path());
        let output = itself.uid(NOBODY).gid(NOBODY).output().unwrap();
        let ran = String::from_utf8_lossy(&output.stdout).contains("1 passed");
        assert!(output.status.success() && ran, "{}", String::from_utf8_lossy(&output.stderr));
        return;
    }
    let operation = Operation::without_fingerprint(Scope::global(), Key::client("a").unwrap());
    for made_before in [false, true] {
        let parent = place.path().join(format!("parent-{made_before}"));
        let names = ["store", "backup", "restored"].map(|name| parent.join(name));
        let [path, backup, to] = &names;
        std::fs::create_dir(&parent).unwrap();
        if made_before {
            names.iter().for_each(|folder| std::fs::create_dir(folder).unwrap());
        }
        std::fs::set_permissions(&parent, Permissions::from_mode(0o311)).unwrap();
        let engine = Engine::new(EmbeddedStore::open(path).unwrap());
        engine.run(&operation, async |_| Ok(Outcome::bytes("done"))).await.unwrap();
        drop(engine);
        let store = EmbeddedStore::open(path).unwrap();
        store.backup(backup).await.unwrap();
        restore(backup, to, &RestoreOptions::default(), &mut |_| {}).unwrap();
        let engine = Engine::new(EmbeddedStore::open(to).unwrap());
        let again = engine.run(&operation, async |_| panic!("it ran before")).await.unwrap();
        assert_eq!(again, Ran::Replayed(Outcome::bytes("done")));
        std::fs::set_permissions(&parent, Permissions::from_mode(0o700)).unwrap();
    }
}
