//! The scripts, one for each step, put together from the files in `lua`.

use redis::{Cmd, Script, Value};

use crate::connection::Connection;
use crate::error::CommandError;
use crate::layout::Key;
use crate::nodes::{Nodes, Reply};
use justonce_core::StoreResult;

/// One script, by its text and by the hash under which the server keeps it.
pub(crate) struct Lua {
    text: &'static str,
    hash: String,
}

impl Lua {
    fn new(text: &'static str) -> Self {
        Self { text, hash: Script::new(text).get_hash().to_owned() }
    }
}

/// Declares a set of scripts: each is a file in `lua`, behind the parts that it uses.
macro_rules! scripts {
    ($(#[$doc:meta])* $set:ident { $($name:ident: $($part:ident)*;)* }) => {
        $(#[$doc])*
        pub(crate) struct $set {
            $(pub(crate) $name: Lua,)*
        }

        impl $set {
            pub(crate) fn new() -> Self {
                Self {
                    $($name: Lua::new(concat!(
                        $(include_str!(concat!("../lua/parts/", stringify!($part), ".lua")),)*
                        include_str!(concat!("../lua/", stringify!($name), ".lua")),
                    )),)*
                }
            }
        }
    };
}

scripts! {
    /// The scripts of the store.
    Scripts {
        begin: is_kept return_existing claim_new try_claim head record write;
        begin_batch: is_kept claim_new letters;
        peek: clock;
        complete: fast_complete try_complete head record write owner settle;
        complete_batch: fast_complete letters;
        fail: clock head record write owner settle;
        release: clock head record write owner settle;
        renew: clock head record write owner;
        checkpoint: clock head record write owner;
        abandon: clock head record write owner;
        resolve: clock head record write owner settle;
        expire: clock head record write bury owner;
        erase: clock head record write;
        sweep: clock head record write bury;
        watch: clock;
        due: clock;
        count: clock;
    }
}

scripts! {
    /// The scripts of the cache of outcomes.
    OutcomeScripts {
        outcome_get: clock;
        outcome_put: clock;
        outcome_forget: clock;
    }
}

/// Runs a script at the server of a bucket. A server that has lost the script gets it again.
pub(crate) async fn run(
    nodes: &Nodes,
    bucket: u8,
    slot: u8,
    script: &Lua,
    keys: &[Key<'_>],
    arguments: &[&[u8]],
) -> StoreResult<Reply> {
    let by_hash = command("EVALSHA", &script.hash, keys, arguments);
    match nodes.send(bucket, slot, &by_hash).await {
        Err(CommandError::NoScript) => {
            let whole = command("EVAL", script.text, keys, arguments);
            nodes.send(bucket, slot, &whole).await
        }
        other => other,
    }
    .map_err(CommandError::into_error)
}

/// The same over one connection.
pub(crate) async fn run_over(
    nodes: &Nodes,
    connection: &Connection,
    script: &Lua,
    keys: &[Key<'_>],
    arguments: &[&[u8]],
) -> Result<Value, CommandError> {
    let by_hash = command("EVALSHA", &script.hash, keys, arguments);
    match nodes.send_over(connection, &by_hash).await {
        Err(CommandError::NoScript) => {
            nodes.send_over(connection, &command("EVAL", script.text, keys, arguments)).await
        }
        other => other,
    }
}

fn command(name: &str, script: &str, keys: &[Key<'_>], arguments: &[&[u8]]) -> Cmd {
    let sizes = keys.iter().map(Key::len).chain(arguments.iter().map(|argument| argument.len()));
    let (count, size) = (keys.len() + arguments.len(), sizes.sum::<usize>());
    // The name, the script and the number of keys come first.
    let mut command = Cmd::with_capacity(3 + count, size + name.len() + script.len() + 8);
    command.arg(name).arg(script).arg(keys.len());
    for key in keys {
        command.arg(key);
    }
    for argument in arguments {
        command.arg(*argument);
    }
    command
}
