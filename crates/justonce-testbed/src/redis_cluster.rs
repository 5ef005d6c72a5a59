//! A private Redis Cluster.

use super::process::until;
use super::redis::{CLI_TLS, new_directory, run_cli};
use super::{Certificate, RedisServer, ServerError, free_port};

/// After how many milliseconds without an answer a node's replica takes over.
const NODE_TIMEOUT_MILLIS: &str = "1000";

/// A Redis Cluster of private processes.
///
/// ```no_run
/// use justonce_testbed::RedisCluster;
///
/// # fn main() -> Result<(), justonce_testbed::ServerError> {
/// // Three primaries with a replica each.
/// let cluster = RedisCluster::start(3, 1)?;
/// assert_eq!(cluster.nodes().len(), 6);
/// // Moves a hundred slots from one primary to another.
/// let primaries = cluster.primaries()?;
/// cluster.reshard(primaries[0], primaries[1], 100)?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct RedisCluster {
    nodes: Vec<RedisServer>,
    tls: bool,
}

impl RedisCluster {
    /// Starts so many primaries with so many replicas each, and returns once the cluster is up.
    ///
    /// # Errors
    ///
    /// If a node does not start or the cluster does not come up.
    pub fn start(primaries: usize, replicas: usize) -> Result<Self, ServerError> {
        Self::start_as(None, primaries, replicas)
    }

    /// Like [`start`](Self::start), with TLS only.
    ///
    /// # Errors
    ///
    /// If a node does not start or the cluster does not come up.
    pub fn start_tls(
        certificate: &Certificate,
        primaries: usize,
        replicas: usize,
    ) -> Result<Self, ServerError> {
        Self::start_as(Some(certificate), primaries, replicas)
    }

    fn start_as(
        certificate: Option<&Certificate>,
        primaries: usize,
        replicas: usize,
    ) -> Result<Self, ServerError> {
        let nodes = (0..primaries * (replicas + 1))
            .map(|_| RedisServer::start_in(new_directory()?, certificate, |_| options()))
            .collect::<Result<Vec<_>, _>>()?;
        let places: Vec<String> = nodes.iter().map(RedisServer::place).collect();
        let replicas_each = replicas.to_string();
        let tls = certificate.is_some();
        let mut arguments = if tls { CLI_TLS.to_vec() } else { Vec::new() };
        arguments.extend(["--cluster", "create"]);
        arguments.extend(places.iter().map(String::as_str));
        arguments.extend(["--cluster-replicas", replicas_each.as_str(), "--cluster-yes"]);
        run_cli(&arguments)?;
        let cluster = Self { nodes, tls };
        for node in &cluster.nodes {
            until("the cluster does not come up", || {
                let replicates = cluster.replicas_in_step(node)?;
                Ok((is_ok(node)? && replicates).then_some(()))
            })?;
        }
        Ok(cluster)
    }

    fn replicas_in_step(&self, node: &RedisServer) -> Result<bool, ServerError> {
        if !node.cli(&["ROLE"])?.starts_with("slave") {
            return Ok(true);
        }
        Ok(node.info("replication", "master_link_status")? == "up")
    }

    /// The address of a store on this cluster.
    #[must_use]
    pub fn url(&self) -> String {
        let places: Vec<String> = self.nodes.iter().map(RedisServer::place).collect();
        let scheme = if self.tls { "rediss-cluster" } else { "redis-cluster" };
        format!("{scheme}://{}", places.join(","))
    }

    /// All nodes.
    #[must_use]
    pub fn nodes(&self) -> &[RedisServer] {
        &self.nodes
    }

    /// The nodes that are primaries now, without those that do not answer.
    ///
    /// # Errors
    ///
    /// If there is none.
    pub fn primaries(&self) -> Result<Vec<&RedisServer>, ServerError> {
        let is_primary =
            |node: &&RedisServer| node.cli(&["ROLE"]).is_ok_and(|role| role.starts_with("master"));
        let found: Vec<&RedisServer> = self.nodes.iter().filter(is_primary).collect();
        if found.is_empty() {
            return Err(ServerError::new("the cluster", &"no node is a primary"));
        }
        Ok(found)
    }

    /// Moves so many slots with all their keys from one primary to another.
    ///
    /// # Errors
    ///
    /// If they cannot be moved.
    pub fn reshard(
        &self,
        from: &RedisServer,
        to: &RedisServer,
        slots: u16,
    ) -> Result<(), ServerError> {
        let (from_id, to_id) = (from.cli(&["CLUSTER", "MYID"])?, to.cli(&["CLUSTER", "MYID"])?);
        let (place, slots) = (from.place(), slots.to_string());
        let mut arguments = if self.tls { CLI_TLS.to_vec() } else { Vec::new() };
        arguments.extend(["--cluster", "reshard", &place]);
        arguments.extend(["--cluster-from", &from_id, "--cluster-to", &to_id]);
        arguments.extend(["--cluster-slots", &slots, "--cluster-yes"]);
        run_cli(&arguments).map(drop)
    }

    /// Waits until all nodes but this one report that every slot is served.
    ///
    /// # Errors
    ///
    /// If they do not.
    pub fn healed_without(&self, lost: &RedisServer) -> Result<(), ServerError> {
        let id_of = |place: &str| format!("{place}@");
        for node in self.nodes.iter().filter(|node| node.port() != lost.port()) {
            until("no replica takes over", || {
                let text = node.cli(&["CLUSTER", "NODES"])?;
                let gone = id_of(&lost.place());
                let mut lines = text.lines().filter(|line| line.contains(&gone));
                let replaced = lines.all(|line| line.contains("fail") && !line.contains("-16383"));
                Ok((is_ok(node)? && replaced && self.primaries()?.len() >= 3).then_some(()))
            })?;
        }
        Ok(())
    }
}

fn is_ok(node: &RedisServer) -> Result<bool, ServerError> {
    let info = node.cli(&["CLUSTER", "INFO"])?;
    Ok(info.lines().any(|line| line.trim() == "cluster_state:ok"))
}

fn options() -> Result<Vec<String>, ServerError> {
    let bus = free_port()?.to_string();
    let options = [
        ("--cluster-enabled", "yes"),
        ("--cluster-node-timeout", NODE_TIMEOUT_MILLIS),
        ("--cluster-port", bus.as_str()),
        ("--repl-diskless-sync-delay", "0"),
    ];
    Ok(options.iter().flat_map(|(name, value)| [(*name).to_owned(), (*value).to_owned()]).collect())
}
