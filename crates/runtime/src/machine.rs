//! How much memory this process may still take, from the operating system's own files.

use std::path::{Path, PathBuf};

/// Where the limits are read from: the system's files, or others in a test.
#[derive(Clone, Debug)]
pub struct Machine {
    /// `/proc/meminfo`.
    pub meminfo: PathBuf,
    /// `/proc/self/cgroup`.
    pub membership: PathBuf,
    /// `/sys/fs/cgroup`.
    pub cgroups: PathBuf,
}

impl Default for Machine {
    fn default() -> Self {
        Self {
            meminfo: "/proc/meminfo".into(),
            membership: "/proc/self/cgroup".into(),
            cgroups: "/sys/fs/cgroup".into(),
        }
    }
}

impl Machine {
    /// Bytes that can be used without swapping and within the container's limit; `None` where the system does not say.
    pub fn available_memory(&self) -> Option<u64> {
        let free = std::fs::read_to_string(&self.meminfo).ok().and_then(|text| mem_available(&text));
        match (free, self.cgroup_headroom()) {
            (Some(free), Some(headroom)) => Some(free.min(headroom)),
            (one, other) => one.or(other),
        }
    }

    /// The least of limit minus use over the process's groups and their parents, cgroup version 2 or 1. File pages that were not
    /// used lately are not in use.
    fn cgroup_headroom(&self) -> Option<u64> {
        let membership = std::fs::read_to_string(&self.membership).unwrap_or_default();
        let v2 = membership.lines().find_map(|l| l.strip_prefix("0::"));
        let v1 = membership.lines().find_map(|l| {
            let (controllers, path) = l.split_once(':')?.1.split_once(':')?;
            controllers.split(',').any(|c| c == "memory").then_some(path)
        });
        let v2 = v2.into_iter().flat_map(|path| headrooms(&self.cgroups, path, V2));
        let root = self.cgroups.join("memory");
        let v1 = v1.into_iter().flat_map(|path| headrooms(&root, path, V1));
        v2.chain(v1).min()
    }
}

/// Names of a group's limit, of its use, and of the file pages among that which can be dropped.
type Names = [&'static str; 3];

const V2: Names = ["memory.max", "memory.current", "inactive_file"];
const V1: Names = ["memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"];

fn headrooms(root: &Path, group: &str, [limit, used, pages]: Names) -> Vec<u64> {
    let read = |path: PathBuf| std::fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
    let listed = |path: PathBuf| {
        let text = std::fs::read_to_string(path).ok()?;
        text.lines()
            .find_map(|line| line.split_once(' ').filter(|(name, _)| *name == pages)?.1.trim().parse::<u64>().ok())
    };
    let group = root.join(group.trim_start_matches('/'));
    let folders = group.ancestors().take_while(|folder| folder.starts_with(root));
    let headroom = |folder: &Path| {
        let pages = listed(folder.join("memory.stat")).unwrap_or(0);
        let used = read(folder.join(used)).unwrap_or(0).saturating_sub(pages);
        Some(read(folder.join(limit))?.saturating_sub(used))
    };
    folders.filter_map(headroom).collect()
}

fn mem_available(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|l| l.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_limit_counts() {
        let dir = tempfile::tempdir().expect("a folder");
        let at = |name: &str| dir.path().join(name);
        let machine = Machine { meminfo: at("meminfo"), membership: at("cgroup"), cgroups: at("cg") };
        assert_eq!(machine.available_memory(), None);
        std::fs::write(at("meminfo"), "MemTotal: 9000 kB\nMemAvailable:    8000 kB\n").expect("written");
        assert_eq!(machine.available_memory(), Some(8000 * 1024));
        std::fs::create_dir_all(at("cg/a/b")).expect("made");
        std::fs::write(at("cgroup"), "0::/a/b\n").expect("written");
        std::fs::write(at("cg/a/b/memory.max"), "max\n").expect("written");
        assert_eq!(machine.available_memory(), Some(8000 * 1024));
        std::fs::write(at("cg/a/memory.max"), "5000\n").expect("written");
        std::fs::write(at("cg/a/memory.current"), "1000\n").expect("written");
        assert_eq!(machine.available_memory(), Some(4000));
        // What was read from files and not lately used makes way.
        std::fs::write(at("cg/a/memory.stat"), "anon 300\ninactive_file 600\nactive_file 100\n").expect("written");
        assert_eq!(machine.available_memory(), Some(4600));
        std::fs::create_dir_all(at("cg/memory/b")).expect("made");
        std::fs::write(at("cgroup"), "4:memory:/b\n0::/\n").expect("written");
        for (name, text) in
            [("limit_in_bytes", "9000\n"), ("usage_in_bytes", "8000\n"), ("stat", "total_inactive_file 50\n")]
        {
            std::fs::write(at(&format!("cg/memory/b/memory.{name}")), text).expect("written");
        }
        assert_eq!(machine.available_memory(), Some(1050));
    }
}
