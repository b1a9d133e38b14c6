//! The kinds of threads that the daemons have, and which starts which.

use std::fmt;

use super::rule::Rule;
use super::tables::{aggregator, common, device, vmm};

/// The hardware or machine that a process drives; some of its threads need more rights for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Drives {
    /// No hardware and no machine.
    #[default]
    Nothing,
    /// A real GPU, through the NVIDIA driver.
    RealGpu,
    /// A guest's machine, on KVM.
    Machine,
    /// A card, through the kernel's VFIO.
    Card,
    /// A guest's machine, on KVM, with a card in it.
    MachineWithCard,
}

/// Role of a thread, which decides the system calls that it may make.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Role {
    /// Device back end, main thread: serves QEMU.
    Session = 1,
    /// Device back end, `gpuvmk softgpu`: answers clients that come while another one has the device.
    Door,
    /// Device back end: takes the aggregator's events.
    Events,
    /// Device back end, `gpuvmk softgpu`: the GF100's alarm.
    Alarm,
    /// Device back end: carries out channels of a driver's kernel.
    KernelChannels,
    /// Device back end: begins the frames of a virtual GPU's head.
    Frames,
    /// Device back end: composes what a head shows.
    Compose,
    /// Device back end: serves people who look at a head.
    Viewers,
    /// Device back end, `gpuvmk softgpu`: unmasks INTx when KVM says so.
    Unmask,
    /// Device back end, `gpuvmk softgpu`: writes the trace.
    Trace,
    /// Device back end, aggregator: serves clients that record while VMs work.
    Recorder,
    /// Every daemon: waits for SIGTERM.
    Signals,
    /// Aggregator, main thread: waits for the end.
    Supervisor,
    /// Aggregator: owns the software GPU.
    Owner,
    /// Aggregator: owns a real GPU, through the NVIDIA driver.
    RmOwner,
    /// Aggregator: owns a card, through VFIO.
    CardOwner,
    /// Every daemon with a card: hands on its interrupts.
    CardInterrupts,
    /// Device back end, main thread: serves QEMU a whole card.
    CardSession,
    /// Aggregator: serves operators.
    Control,
    /// Aggregator with a real GPU: holds VMs' memory in place for it.
    Pinner,
    /// Aggregator with a card: lets it reach VMs' memory.
    CardPinner,
    /// Aggregator: accepts device back ends, and gives each a porter.
    Gate,
    /// Aggregator: owns the socket of one device back end.
    Porter,
    /// Aggregator: ends what VMs had, and starts more threads for that.
    Reaper,
    /// Aggregator, `gpuvmk softgpu`: one of the software GPU's host units, which executes short methods too.
    Pbdma,
    /// Aggregator, `gpuvmk softgpu`: the long work of one of the software GPU's engines, and what helps
    /// with its grids.
    Engine,
    /// `gpuvmk softgpu`, main thread: serves QEMU.
    SoftGpu,
    /// `gpuvmk vmm`, main thread: makes the machine.
    Vmm,
    /// `gpuvmk vmm`, main thread: makes a machine with a whole card.
    CardVmm,
    /// `gpuvmk vmm`: runs one of the guest's processors.
    Processor,
    /// `gpuvmk vmm`: runs one of the processors of a guest with a whole card.
    CardProcessor,
    /// `gpuvmk vmm`: carries out doorbells.
    Doorbells,
    /// `gpuvmk vmm`: the same where the GPU is a whole card, which has none.
    CardDoorbells,
    /// `gpuvmk vmm`: serves a disk.
    Disk,
    /// `gpuvmk vmm`: has to do with a vhost-user back end.
    BackEnd,
    /// `gpuvmk vmm`: ends waits for back ends.
    BackEndClock,
    /// `gpuvmk vmm`: gives the guest what is typed.
    Typing,
    /// `gpuvmk vmm`: takes the aggregator's events; the GF100's alarm; carries out channels of a driver's
    /// kernel.
    Interrupts,
}

impl Role {
    /// All roles.
    pub const ALL: [Self; 38] = [
        Self::Session,
        Self::Door,
        Self::Events,
        Self::Alarm,
        Self::KernelChannels,
        Self::Frames,
        Self::Compose,
        Self::Viewers,
        Self::Unmask,
        Self::Trace,
        Self::Recorder,
        Self::Signals,
        Self::Supervisor,
        Self::Owner,
        Self::RmOwner,
        Self::CardOwner,
        Self::CardInterrupts,
        Self::CardSession,
        Self::Control,
        Self::Pinner,
        Self::CardPinner,
        Self::Gate,
        Self::Porter,
        Self::Reaper,
        Self::Pbdma,
        Self::Engine,
        Self::SoftGpu,
        Self::Vmm,
        Self::CardVmm,
        Self::Processor,
        Self::CardProcessor,
        Self::Doorbells,
        Self::CardDoorbells,
        Self::Disk,
        Self::BackEnd,
        Self::BackEndClock,
        Self::Typing,
        Self::Interrupts,
    ];

    /// Its name, in logs and listings.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Session => "session",
            Self::Door => "door",
            Self::Events => "events",
            Self::Alarm => "alarm",
            Self::KernelChannels => "kernel-channels",
            Self::Frames => "frames",
            Self::Compose => "compose",
            Self::Viewers => "viewers",
            Self::Unmask => "unmask",
            Self::Trace => "trace",
            Self::Recorder => "recorder",
            Self::Signals => "signals",
            Self::Supervisor => "supervisor",
            Self::Owner => "owner",
            Self::RmOwner => "rm-owner",
            Self::CardOwner => "card-owner",
            Self::CardInterrupts => "card-interrupts",
            Self::CardSession => "card-session",
            Self::Control => "control",
            Self::Pinner => "pinner",
            Self::CardPinner => "card-pinner",
            Self::Gate => "gate",
            Self::Porter => "porter",
            Self::Reaper => "reaper",
            Self::Pbdma => "pbdma",
            Self::Engine => "engine",
            Self::SoftGpu => "softgpu",
            Self::Vmm => "vmm",
            Self::CardVmm => "card-vmm",
            Self::Processor => "processor",
            Self::CardProcessor => "card-processor",
            Self::Doorbells => "doorbells",
            Self::CardDoorbells => "card-doorbells",
            Self::Disk => "disk",
            Self::BackEnd => "back-end",
            Self::BackEndClock => "back-end-clock",
            Self::Typing => "typing",
            Self::Interrupts => "interrupts",
        }
    }

    /// The role of that name.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.name() == name)
    }

    /// How its thread is called, or how the names of its threads begin; `None` for a main thread, which is
    /// called after the program.
    pub const fn thread(self) -> Option<&'static str> {
        match self {
            Self::Session
            | Self::CardSession
            | Self::Supervisor
            | Self::SoftGpu
            | Self::Vmm
            | Self::CardVmm => None,
            Self::Door => Some("door"),
            Self::Events => Some("aggregator-events"),
            Self::Alarm => Some("gf100-alarm"),
            Self::KernelChannels => Some("kernel-channels"),
            Self::Frames => Some("frames"),
            Self::Compose => Some("display-compose"),
            Self::Viewers => Some("display-viewers"),
            Self::Unmask => Some("intx-unmask"),
            Self::Trace => Some("trace"),
            Self::Recorder => Some("recorder"),
            Self::Signals => Some("signals"),
            Self::Owner | Self::RmOwner | Self::CardOwner => Some("aggregator"),
            Self::CardInterrupts => Some("card-interrupts"),
            Self::Control => Some("control"),
            Self::Pinner | Self::CardPinner => Some("pinner"),
            Self::Gate => Some("gate"),
            Self::Porter => Some("porter"),
            Self::Reaper => Some("reaper"),
            Self::Pbdma => Some("pbdma"),
            Self::Engine => Some("engine"),
            Self::Processor | Self::CardProcessor => Some("processor"),
            Self::Doorbells | Self::CardDoorbells => Some("doorbells"),
            Self::Disk => Some("disk"),
            Self::BackEnd => Some("vhost-user"),
            Self::BackEndClock => Some("back-end-clock"),
            Self::Typing => Some("console"),
            // Or `gf100-alarm`, `kernel-channels`, `frames`.
            Self::Interrupts => Some("aggregator-events"),
        }
    }

    /// True for the roles of `gpuvmk vmm`, which runs only where KVM runs stock kernels.
    pub const fn needs_kvm(self) -> bool {
        matches!(
            self,
            Self::Vmm
                | Self::CardVmm
                | Self::Processor
                | Self::CardProcessor
                | Self::Doorbells
                | Self::CardDoorbells
                | Self::Disk
                | Self::BackEnd
                | Self::BackEndClock
                | Self::Typing
                | Self::Interrupts
        )
    }

    /// The role of a thread that is called so, in a process that drives `what`.
    pub(super) const fn within(self, what: Drives) -> Self {
        match (self, what) {
            (Self::Owner, Drives::RealGpu) => Self::RmOwner,
            (Self::Owner, Drives::Card) => Self::CardOwner,
            (Self::Pinner, Drives::Card) => Self::CardPinner,
            (Self::Session, Drives::Card) => Self::CardSession,
            (Self::Vmm, Drives::MachineWithCard) => Self::CardVmm,
            (Self::Processor, Drives::MachineWithCard) => Self::CardProcessor,
            (Self::Doorbells, Drives::MachineWithCard) => Self::CardDoorbells,
            (Self::Events | Self::Alarm | Self::KernelChannels | Self::Frames, Drives::Machine) => {
                Self::Interrupts
            }
            _ => self,
        }
    }

    /// The roles of threads that a thread of this role starts. They inherit its filter, so it must allow all
    /// that they need.
    pub const fn starts(self) -> &'static [Self] {
        match self {
            Self::Session => {
                &[Self::Door, Self::Events, Self::Alarm, Self::KernelChannels, Self::Frames, Self::Unmask]
            }
            Self::SoftGpu => &[Self::Door, Self::Alarm, Self::Unmask],
            Self::Vmm => &[Self::Processor, Self::Doorbells, Self::Typing, Self::Interrupts],
            Self::Processor => &[Self::Interrupts],
            Self::Reaper => &[Self::Reaper],
            Self::Gate => &[Self::Porter],
            Self::CardSession => &[Self::Door, Self::CardInterrupts, Self::Unmask],
            Self::CardVmm => &[Self::CardProcessor, Self::CardDoorbells, Self::Typing, Self::CardInterrupts],
            // Main threads start the rest before they give anything up.
            _ => &[],
        }
    }

    /// Its filter: everything that it may do.
    pub fn rules(self) -> impl Iterator<Item = &'static Rule> {
        self.groups().iter().flat_map(|group| group.iter())
    }

    const fn groups(self) -> &'static [&'static [Rule]] {
        match self {
            Self::Session => device::SESSION,
            Self::Door => device::DOOR,
            Self::Events => device::EVENTS,
            Self::Alarm => device::ALARM,
            Self::KernelChannels => device::KERNEL_CHANNELS,
            Self::Frames => device::FRAMES,
            Self::Compose => device::COMPOSE,
            Self::Viewers => device::VIEWERS,
            Self::Unmask => device::UNMASK,
            Self::Trace => device::TRACE,
            Self::Recorder => device::RECORDER,
            Self::Signals => common::SIGNALS,
            Self::Supervisor => aggregator::SUPERVISOR,
            Self::Owner => aggregator::OWNER,
            Self::RmOwner => aggregator::RM_OWNER,
            Self::CardOwner => aggregator::CARD_OWNER,
            Self::CardInterrupts => aggregator::CARD_INTERRUPTS,
            Self::CardSession => device::CARD_SESSION,
            Self::Control => aggregator::CONTROL,
            Self::Pinner => aggregator::PINNER,
            Self::CardPinner => aggregator::CARD_PINNER,
            Self::Gate => aggregator::GATE,
            Self::Porter => aggregator::PORTER,
            Self::Reaper => aggregator::REAPER,
            Self::Pbdma => aggregator::PBDMA,
            Self::Engine => aggregator::ENGINE,
            Self::SoftGpu => device::SOFTGPU,
            Self::Vmm => vmm::VMM,
            Self::CardVmm => vmm::CARD_VMM,
            Self::Processor => vmm::PROCESSOR,
            Self::CardProcessor => vmm::CARD_PROCESSOR,
            Self::Doorbells => vmm::DOORBELLS,
            Self::CardDoorbells => vmm::CARD_DOORBELLS,
            Self::Disk => vmm::DISK,
            Self::BackEnd => vmm::BACK_END,
            Self::BackEndClock => vmm::BACK_END_CLOCK,
            Self::Typing => vmm::TYPING,
            Self::Interrupts => vmm::INTERRUPTS,
        }
    }

    /// True if a filter allows a call with these arguments (in the role's thread, now).
    pub fn allows(self, number: i64, arguments: &[u64]) -> bool {
        self.rules().any(|rule| rule.matches(number, arguments))
    }
}

impl Rule {
    /// True when this entry lets the call pass.
    pub fn matches(&self, number: i64, arguments: &[u64]) -> bool {
        self.number == number
            && self.when.iter().all(|condition| {
                let (mask, value) = condition.test.mask_and_value();
                arguments.get(usize::from(condition.argument)).is_some_and(|argument| {
                    // The lower half only, as the filter does.
                    argument & u64::from(mask) == u64::from(value)
                })
            })
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
