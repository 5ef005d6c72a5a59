//! Child processes: what is run is printed first, and a failure names the command that failed.

use std::fmt;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use anyhow::{Context, Result, bail};

/// The directory of the root manifest, wherever the command was started from.
///
/// Cargo's variable is preferred to the compiled-in path because a target directory that is shared
/// between checkouts could hold a binary built in another one.
pub(crate) fn workspace_root() -> PathBuf {
    let manifest_dir = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    manifest_dir.parent().map_or_else(|| manifest_dir.clone(), Path::to_path_buf)
}

/// A command line that has not been run yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cmd {
    program: String,
    args: Vec<String>,
    envs: Vec<(String, String)>,
}

impl Cmd {
    /// A command from its program and arguments; no shell is involved.
    pub(crate) fn new<S: AsRef<str>>(program: &str, args: &[S]) -> Self {
        let args = args.iter().map(|arg| arg.as_ref().to_owned()).collect();
        Self { program: program.to_owned(), args, envs: Vec::new() }
    }

    /// A command from one line that is split at whitespace, or nothing if the line is blank.
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let mut words = line.split_whitespace();
        let program = words.next()?;
        Some(Self::new(program, &words.collect::<Vec<_>>()))
    }

    /// Adds arguments at the end.
    pub(crate) fn args<S: AsRef<str>>(mut self, args: &[S]) -> Self {
        self.args.extend(args.iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    /// Sets a variable for the child only.
    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.envs.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Prints the command, runs it with this process's output, and fails unless it succeeds.
    pub(crate) fn run(&self) -> Result<()> {
        let status = self.status()?;
        if !status.success() {
            bail!("`{self}` failed ({status})");
        }
        Ok(())
    }

    /// Prints the command, runs it with this process's output, and returns how it ended.
    pub(crate) fn status(&self) -> Result<ExitStatus> {
        eprintln!("$ {self}");
        self.command().status().with_context(|| self.cannot_start())
    }

    /// Prints the command and runs it; what it complains of is shown and returned, with whether it
    /// succeeded.
    pub(crate) fn watch(&self) -> Result<(bool, String)> {
        eprintln!("$ {self}");
        let child = self.command().stderr(Stdio::piped()).spawn();
        let mut child = child.with_context(|| self.cannot_start())?;
        let mut seen = String::new();
        for line in
            child.stderr.take().into_iter().flat_map(|errors| BufReader::new(errors).lines())
        {
            let line = line.with_context(|| format!("`{self}` wrote invalid UTF-8"))?;
            eprintln!("{line}");
            seen.push_str(&line);
            seen.push('\n');
        }
        Ok((child.wait().with_context(|| self.cannot_start())?.success(), seen))
    }

    /// Runs the command in silence and returns what it wrote.
    pub(crate) fn stdout(&self) -> Result<String> {
        let output = self.command().output().with_context(|| self.cannot_start())?;
        if !output.status.success() {
            let complaint = String::from_utf8_lossy(&output.stderr);
            bail!("`{self}` failed ({}): {}", output.status, complaint.trim());
        }
        String::from_utf8(output.stdout).with_context(|| format!("`{self}` wrote invalid UTF-8"))
    }

    /// Prints the command, runs it, and returns whether it succeeded and what it wrote; that is
    /// shown too.
    pub(crate) fn output(&self) -> Result<(bool, String)> {
        eprintln!("$ {self}");
        let mut command = self.command();
        let output = command.stderr(Stdio::inherit()).output();
        let output = output.with_context(|| self.cannot_start())?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        print!("{text}");
        Ok((output.status.success(), text))
    }

    /// Whether the command exists and succeeds; it is run in silence.
    pub(crate) fn succeeds(&self) -> bool {
        let mut command = self.command();
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    }

    fn cannot_start(&self) -> String {
        format!("cannot start `{self}`: is `{}` installed?", self.program)
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.args).current_dir(workspace_root());
        // `cargo run` describes xtask in these variables. A nested build must not see them: build
        // scripts that watch them would rebuild what a build by hand has already made.
        for (name, _) in std::env::vars_os() {
            let describes_xtask = name
                .to_str()
                .is_some_and(|n| n.starts_with("CARGO_PKG_") || n.starts_with("CARGO_MANIFEST_"));
            if describes_xtask {
                command.env_remove(name);
            }
        }
        command.envs(self.envs.iter().map(|(name, value)| (name, value)));
        command
    }
}

impl fmt::Display for Cmd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, value) in &self.envs {
            write!(f, "{name}={} ", quoted(value))?;
        }
        f.write_str(&quoted(&self.program))?;
        for arg in &self.args {
            write!(f, " {}", quoted(arg))?;
        }
        Ok(())
    }
}

/// Quotes a word where a shell would need it, so that a printed line can be pasted.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_printed_command_can_be_pasted() {
        let cmd = Cmd::new("cargo", &["doc", "a b", "it's"]).env("FLAGS", "-D warnings");
        assert_eq!(cmd.to_string(), r"FLAGS='-D warnings' cargo doc 'a b' 'it'\''s'");
    }

    #[test]
    fn a_line_is_split_at_whitespace() {
        assert_eq!(Cmd::parse("  cargo  fmt "), Some(Cmd::new("cargo", &["fmt"])));
        assert_eq!(Cmd::parse("   "), None);
    }

    #[test]
    fn a_failure_names_the_command() {
        let error = Cmd::new("false", &["x"]).run().unwrap_err();
        assert!(error.to_string().contains("`false x` failed"), "{error}");
        let error = Cmd::new("no-such-program", &["x"]).run().unwrap_err();
        assert!(error.to_string().contains("is `no-such-program` installed?"), "{error}");
    }

    #[test]
    fn what_a_watched_command_complains_of_is_returned() {
        let cmd = Cmd::new("sh", &["-c", "echo one >&2; echo two >&2; exit 3"]);
        assert_eq!(cmd.watch().unwrap(), (false, "one\ntwo\n".to_owned()));
        assert_eq!(Cmd::new("true", &["x"]).watch().unwrap(), (true, String::new()));
    }

    #[test]
    fn a_probe_of_a_missing_program_is_a_no() {
        assert!(Cmd::new("true", &[] as &[&str]).succeeds());
        assert!(!Cmd::new("no-such-program", &[] as &[&str]).succeeds());
    }

    #[test]
    fn the_workspace_root_holds_this_crate() {
        assert!(workspace_root().join("xtask/Cargo.toml").is_file());
    }
}
