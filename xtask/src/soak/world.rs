//! What all places share: the daemons, and what was seen so far.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::Result;
use gpuvmk_control_client::TenantStatus;
use gpuvmk_lab::rig::Rig;

use super::deeds::Counts;
use super::visitor::{Visitor, Work};
use crate::workshop::Workshop;

/// A VM's departure.
#[derive(Debug, Clone, Copy)]
pub struct Cleanup {
    /// From its end until nothing of it was left.
    pub took: Duration,
    /// The VRAM that it had.
    pub vram_mib: u32,
}

/// The daemons and the records.
#[derive(Debug)]
pub struct World<'a> {
    pub rig: Rig,
    pub workshop: &'a Workshop,
    pub case: &'a str,
    pub counts: Counts,
    pub work: Work,
    pub cleanups: Vec<Cleanup>,
    pub problems: Vec<String>,
    /// Engine accesses outside a tenant's own memory: the most of any tenant.
    pub foreign_accesses: u64,
    complained: BTreeSet<String>,
}

impl<'a> World<'a> {
    /// Nothing has happened yet.
    pub fn new(rig: Rig, workshop: &'a Workshop, case: &'a str) -> Self {
        Self {
            rig,
            workshop,
            case,
            counts: Counts::new(),
            work: Work::default(),
            cleanups: Vec::new(),
            problems: Vec::new(),
            foreign_accesses: 0,
            complained: BTreeSet::new(),
        }
    }

    /// What its aggregator says of a tenant.
    pub fn tenant(&mut self, name: &str) -> Result<Option<TenantStatus>> {
        let tenants = self.rig.tenants()?;
        for tenant in &tenants {
            let problem = match tenant.foreign_accesses {
                Some(0) => continue,
                Some(count) => {
                    self.foreign_accesses = self.foreign_accesses.max(count);
                    "made engine accesses outside its own memory"
                }
                None => "is not watched for accesses outside its own memory",
            };
            if self.complained.insert(tenant.name.clone()) {
                self.problems.push(format!("{} {problem}", tenant.name));
            }
        }
        Ok(tenants.into_iter().find(|tenant| tenant.name == name))
    }

    /// A VM has ended: what it did counts.
    pub fn take_leave(&mut self, visitor: Visitor) {
        let label = visitor.label().to_owned();
        let (work, unexplained) = visitor.end();
        self.work.add(work);
        self.problems.extend(unexplained.into_iter().map(|line| format!("{label}: unexplained: {line}")));
    }
}
