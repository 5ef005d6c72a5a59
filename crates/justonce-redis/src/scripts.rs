//! The scripts, one for each step, put together from the files in `lua`.

use redis::Script;

macro_rules! lua {
    ($($file:literal)*) => {
        concat!($(include_str!(concat!("../lua/", $file, ".lua"))),*)
    };
}

/// One script, by its text and by the hash under which the server keeps it.
pub(crate) struct Lua {
    pub(crate) text: &'static str,
    pub(crate) hash: String,
}

/// All scripts.
pub(crate) struct Scripts {
    pub(crate) begin: Lua,
    pub(crate) begin_together: Lua,
    pub(crate) peek: Lua,
    pub(crate) complete: Lua,
    pub(crate) complete_together: Lua,
    pub(crate) fail: Lua,
    pub(crate) release: Lua,
    pub(crate) renew: Lua,
    pub(crate) checkpoint: Lua,
    pub(crate) abandon: Lua,
    pub(crate) resolve: Lua,
    pub(crate) expire: Lua,
    pub(crate) erase: Lua,
    pub(crate) sweep: Lua,
    pub(crate) watch: Lua,
    pub(crate) due: Lua,
    pub(crate) count: Lua,
}

impl Lua {
    fn new(text: &'static str) -> Self {
        Self { text, hash: Script::new(text).get_hash().to_owned() }
    }
}

impl Scripts {
    pub(crate) fn new() -> Self {
        Self {
            begin: Lua::new(lua!(
                "kept" "looked" "new" "claimed" "head" "record" "write" "begin"
            )),
            begin_together: Lua::new(lua!("kept" "new" "spelled" "begin_together")),
            peek: Lua::new(lua!("clock" "peek")),
            complete: Lua::new(lua!(
                "done" "completed" "head" "record" "write" "owner" "settle" "complete"
            )),
            complete_together: Lua::new(lua!("done" "spelled" "complete_together")),
            fail: Lua::new(lua!("clock" "head" "record" "write" "owner" "settle" "fail")),
            release: Lua::new(lua!("clock" "head" "record" "write" "owner" "settle" "release")),
            renew: Lua::new(lua!("clock" "head" "record" "write" "owner" "renew")),
            checkpoint: Lua::new(lua!("clock" "head" "record" "write" "owner" "checkpoint")),
            abandon: Lua::new(lua!("clock" "head" "record" "write" "owner" "abandon")),
            resolve: Lua::new(lua!("clock" "head" "record" "write" "owner" "settle" "resolve")),
            expire: Lua::new(lua!("clock" "head" "record" "write" "bury" "owner" "expire")),
            erase: Lua::new(lua!("clock" "head" "record" "write" "erase")),
            sweep: Lua::new(lua!("clock" "head" "record" "write" "bury" "sweep")),
            watch: Lua::new(lua!("clock" "watch")),
            due: Lua::new(lua!("clock" "due")),
            count: Lua::new(lua!("clock" "count")),
        }
    }
}

/// The scripts of the cache of outcomes.
pub(crate) struct OutcomeScripts {
    pub(crate) get: Lua,
    pub(crate) put: Lua,
    pub(crate) forget: Lua,
}

impl OutcomeScripts {
    pub(crate) fn new() -> Self {
        Self {
            get: Lua::new(lua!("clock" "outcome_get")),
            put: Lua::new(lua!("clock" "outcome_put")),
            forget: Lua::new(lua!("clock" "outcome_forget")),
        }
    }
}
