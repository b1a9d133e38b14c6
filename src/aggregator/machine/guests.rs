//! Which VMs may be admitted, by which users, and how much each may have: by the GPU's file where it has a
//! list of VMs. A back end's own request may only lower that.
//!
//! Without a list, a user who is not the aggregator's own has one VM, and no more of the GPU's time than any
//! other. The aggregator's own user is trusted to say what its VMs are; one process of it shall not take all
//! places all the same.

use std::collections::BTreeMap;

use gpuvmk_control_client::GuestStatus;

use crate::claimant::Claimant;
use crate::protocol::{Hello, RefusalKind, TenantLimits};
use crate::tenant::{Holder, Refusal};
use crate::vm_entry::{EntryLimits, VmEntry};
use crate::wire::MAX_NAME;
use gpuvmk_scheduler::share::{Rejection, Share};

/// Most VMs in a list.
const MAX_LISTED: usize = 256;

/// The rule for names of VMs, in words.
pub(super) const NAME_RULE: &str =
    "1 to 64 letters, digits, '-', '_' or '.', and begins with no '-' and no '.'";

/// True if a VM may be called so. A name goes into file names and commands: none is an option, a hidden file
/// or a folder there.
pub(super) fn is_name(name: &str) -> bool {
    let clean = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let begins = |c: char| c.is_ascii_alphanumeric() || c == '_';
    name.len() <= MAX_NAME && name.starts_with(begins) && name.chars().all(clean)
}

/// A VM that may come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guest {
    /// The user whose back end may be this VM; `None`: any peer at its socket.
    pub uid: Option<u32>,
    /// It has its own socket, and is admitted at no other.
    pub door: bool,
    /// Most VRAM, in bytes.
    pub vram: u64,
    /// Limit of channels.
    pub channels: u16,
    /// Its part of the GPU's time.
    pub share: Share,
    /// Limits of its cost for the aggregator.
    pub limits: EntryLimits,
}

impl Guest {
    /// That of a section whose user has this number.
    pub const fn new(entry: &VmEntry, uid: Option<u32>) -> Self {
        Self {
            uid,
            door: entry.socket.is_some(),
            vram: entry.vram,
            channels: entry.channels,
            share: entry.share,
            limits: entry.limits,
        }
    }
}

impl Guest {
    /// Checks that all values are in range, and that some user can be this VM.
    fn check(&self) -> Result<(), Rejection> {
        self.share.check()?;
        let wrong = |text: &str| Err(Rejection(text.to_owned()));
        match self {
            Self { uid: None, door: false, .. } => {
                wrong("a user or a socket of its own says who may be the VM")
            }
            Self { uid: Some(u32::MAX), .. } => wrong("uid 4294967295 is nobody's"),
            Self { vram: 0, .. } | Self { channels: 0, .. } => {
                wrong("a VM has VRAM, and one channel at least")
            }
            Self { limits: EntryLimits { thread_time, .. }, .. } if !(1..=100).contains(thread_time) => {
                wrong("thread_time is 1 to 100 percent")
            }
            Self { limits: EntryLimits { doorbells: 0, .. }, .. } => {
                wrong("doorbells is 1 a second at least")
            }
            _ => Ok(()),
        }
    }
}

/// A list of VMs, by name.
pub type GuestList = BTreeMap<String, Guest>;

/// The VMs that may come.
#[derive(Clone, Debug)]
pub(super) struct Guests {
    /// `None`: there is no list.
    list: Option<GuestList>,
    /// The aggregator's own user.
    own: u32,
    /// An operator wants no more tenants.
    draining: bool,
}

/// The identity and the limits that a claimant is admitted with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Admissible {
    pub holder: Holder,
    pub share: Share,
    pub limits: TenantLimits,
}

impl Guests {
    pub fn new(list: Option<GuestList>, own: u32) -> Self {
        Self { list, own, draining: false }
    }

    /// Whose settings those of a claimant are.
    pub fn holder(&self, name: &str, claimant: &Claimant) -> Holder {
        if self.list.is_some() {
            Holder::Listed(name.to_owned())
        } else if self.is_own(claimant) {
            Holder::Own(name.to_owned())
        } else {
            Holder::User(claimant.uid)
        }
    }

    /// True if the aggregator's own user is there.
    fn is_own(&self, claimant: &Claimant) -> bool {
        claimant.inside || claimant.uid == self.own
    }

    /// The list, if there is one.
    pub const fn list(&self) -> Option<&GuestList> {
        self.list.as_ref()
    }

    /// The VM that a claimant may be, with its part of the GPU's time. `by_memory` is the fixed part where
    /// none is configured.
    pub fn judge(&self, hello: &Hello, claimant: &Claimant, by_memory: u8) -> Result<Admissible, Refusal> {
        let holder = self.holder(&hello.name, claimant);
        let usual = |share: Share| Share { fixed: share.fixed.or(Some(by_memory)), ..share };
        let more = |rejection: Rejection, by: &str| {
            Refusal::new(RefusalKind::Quota, format!("{rejection} that {by} allows {}", hello.name))
        };
        match &self.list {
            Some(list) => {
                let guest = self.listed(list, hello, claimant)?;
                let share = usual(guest.share)
                    .within(hello.share)
                    .map_err(|rejection| more(rejection, "the GPU's file"))?;
                Ok(Admissible { holder, share, limits: lower(hello.limits, &guest.limits) })
            }
            None if self.is_own(claimant) => {
                Ok(Admissible { holder, share: usual(hello.share), limits: hello.limits })
            }
            None => {
                let by = "a GPU's file without [[vm]] sections";
                let share =
                    usual(Share::default()).within(hello.share).map_err(|rejection| more(rejection, by))?;
                Ok(Admissible { holder, share, limits: hello.limits })
            }
        }
    }

    /// The VM of the list that a claimant is, if it may be that and does not ask for more.
    fn listed<'a>(
        &self,
        list: &'a GuestList,
        hello: &Hello,
        claimant: &Claimant,
    ) -> Result<&'a Guest, Refusal> {
        let name = &hello.name;
        let refuse = |kind, message: String| Err(Refusal::new(kind, message));
        let may = |guest: (&String, &Guest)| {
            guest.1.uid.is_none_or(|uid| uid == claimant.uid)
                && if guest.1.door {
                    claimant.door.as_ref() == Some(guest.0)
                } else {
                    claimant.door.is_none()
                }
        };
        let Some(guest) = list.get(name).filter(|guest| may((name, guest))) else {
            // A refusal does not name others' VMs.
            let own: Vec<_> =
                list.iter().filter(|guest| may(*guest)).map(|(name, _)| name.as_str()).collect();
            let allowed = if own.is_empty() {
                "it may be none at this socket".to_owned()
            } else {
                format!("it may be {}", own.join(", "))
            };
            return refuse(
                RefusalKind::Name,
                format!(
                    "the [[vm]] sections of the GPU's file do not say that user {} may be {name} here; {allowed}",
                    claimant.uid
                ),
            );
        };
        if hello.vram > guest.vram {
            return refuse(
                RefusalKind::Quota,
                format!(
                    "{} MiB of VRAM are asked for; the GPU's file allows {name} {} MiB",
                    hello.vram >> 20,
                    guest.vram >> 20
                ),
            );
        }
        if hello.channels > guest.channels {
            return refuse(
                RefusalKind::Quota,
                format!(
                    "{} channels are asked for; the GPU's file allows {name} {}",
                    hello.channels, guest.channels
                ),
            );
        }
        Ok(guest)
    }

    pub const fn is_draining(&self) -> bool {
        self.draining
    }

    /// An operator wants no more tenants, or tenants again. True if that is new.
    pub const fn set_draining(&mut self, draining: bool) -> bool {
        std::mem::replace(&mut self.draining, draining) != draining
    }

    /// Adds a VM to the list, or changes what it may have from its next connection on. Its part of the GPU's
    /// time changes with [`Machine::set`].
    ///
    /// # Errors
    /// There is no list, it is full, or the VM has its own socket, which only a new aggregator can make.
    pub fn allow(&mut self, name: &str, guest: Guest) -> Result<(), Rejection> {
        guest.check()?;
        if !is_name(name) {
            return Err(Rejection(format!("a VM's name has {NAME_RULE}")));
        }
        let list = self.list.as_mut().ok_or_else(no_list)?;
        if guest.door != list.get(name).is_some_and(|known| known.door) {
            let text =
                format!("{name} gets or loses a socket of its own, which needs a restart of the aggregator");
            return Err(Rejection(text));
        }
        if !list.contains_key(name) && list.len() >= MAX_LISTED {
            return Err(Rejection(format!("the list has {MAX_LISTED} VMs, as many as it may")));
        }
        log::info!("{name} may come now, with {} MiB and {}", guest.vram >> 20, guest.share);
        list.insert(name.to_owned(), guest);
        Ok(())
    }

    /// Takes a VM off the list: it may not come again. If it is connected, it stays until it leaves.
    ///
    /// # Errors
    /// There is no list, or it does not have that VM.
    pub fn forbid(&mut self, name: &str) -> Result<(), Rejection> {
        let list = self.list.as_mut().ok_or_else(no_list)?;
        let names = list.keys().cloned().collect::<Vec<_>>().join(", ");
        list.remove(name)
            .ok_or_else(|| Rejection(format!("{name} is not on the list; there are {names}")))?;
        log::info!("{name} may not come again");
        Ok(())
    }
}

/// The lower of each limit: a back end's are what it wants to be held to.
fn lower(asked: TenantLimits, most: &EntryLimits) -> TenantLimits {
    TenantLimits {
        page_tables: asked.page_tables.min(most.page_tables),
        mappings: asked.mappings.min(most.mappings),
        doorbells: asked.doorbells.min(most.doorbells),
        thread_time: asked.thread_time.min(most.thread_time),
        memory_ranges: asked.memory_ranges.min(most.memory_ranges),
    }
}

fn no_list() -> Rejection {
    Rejection("the GPU's file had no [[vm]] sections when the aggregator started; restart it".to_owned())
}

impl Guest {
    /// The same for operators and for `gpuvmk apply`, under the VM's name.
    pub fn status(&self, name: &str) -> GuestStatus {
        let usual = EntryLimits::default();
        let limits = self.limits;
        GuestStatus {
            name: name.to_owned(),
            uid: self.uid,
            own_socket: self.door,
            vram: self.vram,
            channels: self.channels,
            share: self.share.to_string().split(' ').map(str::to_owned).collect(),
            page_tables: Some(limits.page_tables).filter(|most| *most != usual.page_tables),
            mappings: Some(limits.mappings).filter(|most| *most != usual.mappings),
            doorbells: Some(limits.doorbells).filter(|most| *most != usual.doorbells),
            thread_time: Some(limits.thread_time).filter(|most| *most != usual.thread_time),
            memory_ranges: Some(limits.memory_ranges).filter(|most| *most != usual.memory_ranges),
        }
    }

    /// The VM that an operator describes.
    ///
    /// # Errors
    /// A part of its share is no setting.
    pub fn described(wanted: &GuestStatus) -> Result<Self, Rejection> {
        let usual = EntryLimits::default();
        let wishes = wanted.share.iter().map(|wish| wish.parse());
        Ok(Self {
            uid: wanted.uid,
            door: wanted.own_socket,
            vram: wanted.vram,
            channels: wanted.channels,
            share: wishes
                .into_iter()
                .try_fold(Share::default(), |share, wish| wish.map(|wish| share.with(wish)))?,
            limits: EntryLimits {
                page_tables: wanted.page_tables.unwrap_or(usual.page_tables),
                mappings: wanted.mappings.unwrap_or(usual.mappings),
                doorbells: wanted.doorbells.unwrap_or(usual.doorbells),
                thread_time: wanted.thread_time.unwrap_or(usual.thread_time),
                memory_ranges: wanted.memory_ranges.unwrap_or(usual.memory_ranges),
            },
        })
    }
}
