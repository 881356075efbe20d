//! How many threads to use when nobody says: physical cores, affinity and container quota, whichever is least.

use std::path::{Path, PathBuf};

use super::placement::allowed_processors;

/// Where the limits are read from: the system's folders, or others in a test.
#[derive(Clone, Debug)]
pub struct Limits {
    /// The cgroup file system, `/sys/fs/cgroup`.
    pub cgroups: PathBuf,
    /// The groups this process is in, `/proc/self/cgroup`.
    pub membership: PathBuf,
    /// The processors' folder, `/sys/devices/system/cpu`.
    pub processors: PathBuf,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            cgroups: "/sys/fs/cgroup".into(),
            membership: "/proc/self/cgroup".into(),
            processors: "/sys/devices/system/cpu".into(),
        }
    }
}

/// The default number of threads: the least of physical cores, allowed processors and the whole part of the cgroup quota, but
/// at least 1.
pub fn default_threads(limits: &Limits) -> usize {
    let allowed = allowed_processors();
    let physical = physical_cores(&limits.processors).unwrap_or(allowed);
    let quota = quota(limits).unwrap_or(usize::MAX);
    allowed.min(physical).min(quota).max(1)
}

/// The number of distinct sets of sibling threads.
fn physical_cores(processors: &Path) -> Option<usize> {
    let mut cores = std::collections::BTreeSet::new();
    for entry in std::fs::read_dir(processors).ok()?.flatten() {
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix("cpu"));
        if number.is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit())) {
            let topology = entry.path().join("topology");
            let siblings = ["core_cpus_list", "thread_siblings_list"];
            cores.extend(siblings.iter().find_map(|file| std::fs::read_to_string(topology.join(file)).ok()));
        }
    }
    (!cores.is_empty()).then_some(cores.len())
}

/// The whole processors the tightest quota allows: of this process's groups and all above them, in either cgroup version.
fn quota(limits: &Limits) -> Option<usize> {
    let membership = std::fs::read_to_string(&limits.membership).unwrap_or_default();
    let mut groups = vec![(limits.cgroups.clone(), PathBuf::new())];
    for controller in ["cpu", "cpu,cpuacct"] {
        groups.push((limits.cgroups.join(controller), PathBuf::new()));
    }
    for line in membership.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else {
            continue;
        };
        let path = PathBuf::from(path.trim_start_matches('/'));
        if controllers.is_empty() {
            groups.push((limits.cgroups.clone(), path));
        } else if controllers.split(',').any(|name| name == "cpu") {
            groups.push((limits.cgroups.join(controllers), path.clone()));
            groups.push((limits.cgroups.join("cpu"), path));
        }
    }
    groups
        .iter()
        .flat_map(|(root, path)| path.ancestors().map(|path| root.join(path)))
        .filter_map(|group| quota_v2(&group).or_else(|| quota_v1(&group)))
        .min()
}

fn quota_v2(group: &Path) -> Option<usize> {
    let text = std::fs::read_to_string(group.join("cpu.max")).ok()?;
    let mut words = text.split_whitespace();
    whole(words.next()?, words.next()?)
}

fn quota_v1(group: &Path) -> Option<usize> {
    let read = |file| std::fs::read_to_string(group.join(file)).ok();
    whole(read("cpu.cfs_quota_us")?.trim(), read("cpu.cfs_period_us")?.trim())
}

/// Quota over period, rounded down; `None` where either is no positive number ("max", -1).
fn whole(quota: &str, period: &str) -> Option<usize> {
    let (quota, period) = (quota.parse::<usize>().ok()?, period.parse::<usize>().ok()?);
    (quota > 0 && period > 0).then(|| quota / period)
}
