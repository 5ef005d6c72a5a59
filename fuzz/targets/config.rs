//! The configuration: whatever the file holds, it is refused with words or can be explained.
#![no_main]

// The module below knows our crates by the facade's name.
extern crate justonce_fuzz as justonce;

// Not the server itself: that would be built with all it depends on, which takes many minutes.
#[allow(dead_code, unreachable_pub, unused_imports, reason = "the server uses the rest")]
#[path = "../../crates/justonce-server/src/config/mod.rs"]
mod config;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    match config::parse(text, "justonce.toml") {
        Ok(settings) => {
            assert!(!config::explain(&settings).is_empty());
            let _ = config::warnings(&settings);
        }
        Err(error) => assert!(!error.to_string().trim().is_empty()),
    }
});
