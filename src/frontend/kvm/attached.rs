//! A function in a machine: its regions on the buses where its base address registers say, its interrupts
//! routed where its MSI capability says.
//!
//! Locks: `places` (held while regions are put on buses and taken off; the function is asked then what it
//! shows, and carries nothing out), then those of [`super::windows`].

use super::bus::{BusDevice, Buses};
use super::doorbells::Doorbells;
use super::kicks::Kicks;
use super::messages::Messages;
use super::windows::{WindowCounts, Windows};
use super::{msix, pieces};
use gpuvmk_pci::{PciFunction, Region, RegionKind, RegionTable, RegionWatcher, header};
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// How a machine takes a function.
#[derive(Clone, Debug)]
pub struct Placement {
    /// Addresses at which memory BARs may lie; elsewhere they do not decode.
    pub memory: Vec<Range<u64>>,
    /// The I/O APIC's pin for the function's line.
    pub pin: Option<u32>,
    /// Map what a region shows instead of trapping accesses to it, and have KVM signal doorbells.
    pub direct: bool,
}

/// Shortcuts that save exits of the guest's processors.
#[derive(Debug)]
pub(super) struct Shortcuts {
    windows: Arc<Windows>,
    /// None where the function has none ever.
    doorbells: Option<Doorbells>,
    kicks: Kicks,
}

impl Shortcuts {
    pub(super) fn new(windows: Arc<Windows>, doorbells: Option<Doorbells>, kicks: Kicks) -> Arc<Self> {
        Arc::new(Self { windows, doorbells, kicks })
    }

    /// A region decodes at `gpa` from now on, or not at all.
    fn place(&self, region: Region, gpa: Option<u64>) {
        if let Some(doorbells) = &self.doorbells {
            doorbells.put(region, gpa);
        }
        self.kicks.put(region, gpa);
    }
}

/// A function's reference to the shortcuts; it does not keep them alive.
struct Watch(Weak<Shortcuts>);

impl RegionWatcher for Watch {
    fn changed(&self, region: Region) {
        if let Some(shortcuts) = self.0.upgrade() {
            shortcuts.windows.compare(region);
        }
    }

    fn replaced(&self) {
        if let Some(shortcuts) = self.0.upgrade() {
            shortcuts.windows.forget_all();
        }
    }

    fn coalescable_writes_changed(&self) {
        if let Some(shortcuts) = self.0.upgrade()
            && let Some(doorbells) = &shortcuts.doorbells
        {
            doorbells.follow();
        }
    }
}

/// How much of a function needs no exit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShortcutCounts {
    /// The present mappings.
    pub windows: WindowCounts,
    /// Doorbells that KVM signalled.
    pub doorbells: u64,
}

/// Where a BAR is now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Memory(u64),
    Ports(u16),
}

/// A function that a machine has. Dropping it takes the function off the machine.
pub struct Attached {
    function: Arc<dyn PciFunction>,
    placement: Placement,
    regions: RegionTable,
    buses: Arc<Buses>,
    messages: Arc<Messages>,
    /// Where the table of messages is.
    table: Option<(Region, u64)>,
    shortcuts: Option<Arc<Shortcuts>>,
    places: Mutex<[Option<Place>; 6]>,
}

impl std::fmt::Debug for Attached {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Attached").field("placement", &self.placement).finish_non_exhaustive()
    }
}

/// One region on a bus.
struct OnBus {
    function: Arc<dyn PciFunction>,
    messages: Arc<Messages>,
    table: Option<(Region, u64)>,
    shortcuts: Option<Arc<Shortcuts>>,
    region: Region,
    cut: bool,
}

impl BusDevice for OnBus {
    fn read(&self, offset: u64, data: &mut [u8]) {
        let result = pieces::read(&*self.function, self.region, self.cut, offset, data);
        if result.is_err() {
            // No answer: the bus reads ones.
            data.fill(0xff);
        }
        if let Some(shortcuts) = &self.shortcuts {
            shortcuts.windows.trapped(self.region, offset);
        }
    }

    fn write(&self, offset: u64, data: &[u8]) {
        // A write that fails is lost, as on the bus.
        let _ = pieces::write(&*self.function, self.region, self.cut, offset, data);
        let written = (self.region, offset, data.len());
        if let Err(error) = msix::follow_write(&*self.function, &self.messages, self.table, written) {
            log::warn!("A message goes nowhere: {error}");
        }
        if let Some(shortcuts) = &self.shortcuts {
            shortcuts.windows.trapped(self.region, offset);
        }
    }
}

impl Attached {
    pub(super) fn new(
        function: Arc<dyn PciFunction>,
        placement: Placement,
        buses: Arc<Buses>,
        messages: Arc<Messages>,
        shortcuts: Option<Arc<Shortcuts>>,
    ) -> Arc<Self> {
        function.connect_interrupts(Some(messages.clone()));
        // The process that knows of the end of work first signals it, and KVM makes an interrupt of it: no
        // thread of this process has to run.
        if let Some(owner) = function.message_owner() {
            owner.connect_message(messages.first_event());
        }
        if let (Some(shortcuts), Some(map)) = (&shortcuts, function.direct_map()) {
            map.watch(Some(Arc::new(Watch(Arc::downgrade(shortcuts)))));
        }
        if let Some(queues) = function.queue_events() {
            match messages.all_events() {
                Ok(events) => queues.connect_messages(events),
                Err(error) => log::warn!("The function's messages go nowhere: {error}"),
            }
        }
        let regions = function.regions();
        let table = msix::table(&*function);
        let attached = Arc::new(Self {
            function,
            placement,
            regions,
            buses,
            messages,
            table,
            shortcuts,
            places: Mutex::default(),
        });
        attached.follow();
        attached
    }

    /// The attached function.
    pub fn function(&self) -> &Arc<dyn PciFunction> {
        &self.function
    }

    /// Messages that the function has sent.
    pub fn messages_sent(&self) -> u64 {
        self.messages.sent()
    }

    /// How much of the function needs no exit.
    pub fn shortcuts(&self) -> ShortcutCounts {
        self.shortcuts.as_ref().map_or_else(ShortcutCounts::default, |shortcuts| ShortcutCounts {
            windows: shortcuts.windows.counts(),
            doorbells: shortcuts.doorbells.as_ref().map_or(0, Doorbells::rung),
        })
    }

    /// Reads configuration space.
    pub fn read_config(&self, offset: u64, data: &mut [u8]) {
        if self.function.read(Region::Config, offset, data).is_err() {
            data.fill(0xff);
        }
    }

    /// Writes configuration space, and does with regions and interrupts what follows from it.
    pub fn write_config(&self, offset: u64, data: &[u8]) {
        // A write that leaves configuration space is lost, as on the bus.
        let _ = self.function.write(Region::Config, offset, data);
        self.follow();
    }

    /// Resets the function, as the machine's bus does; nothing decodes afterwards.
    pub fn reset(&self) {
        self.function.reset();
        self.follow();
    }

    /// Puts regions and messages where configuration space says.
    fn follow(&self) {
        if let Err(error) = msix::follow(&*self.function, &self.messages) {
            log::warn!("The function's messages go nowhere: {error}");
        }
        let wanted = self.wanted();
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        // All that leaves goes before anything comes: two may change places.
        for ((bar, place), wanted) in (0..).zip(places.iter_mut()).zip(&wanted) {
            if *place != *wanted {
                self.take(bar, place.take());
            }
        }
        for ((bar, place), wanted) in (0..).zip(places.iter_mut()).zip(wanted) {
            if *place != wanted {
                *place = wanted.filter(|wanted| self.put(bar, *wanted));
            }
        }
    }

    /// Where each BAR is to be, by configuration space.
    fn wanted(&self) -> [Option<Place>; 6] {
        let command = header::word(&*self.function, header::COMMAND);
        let mut wanted = [None; 6];
        for ((bar, place), info) in (0u64..).zip(wanted.iter_mut()).zip(self.regions) {
            let register = |bar: u64| u64::from(header::dword(&*self.function, header::BAR0 + 4 * bar));
            let memory = |base: u64| {
                let end = base.checked_add(info.size)?;
                let room = |range: &Range<u64>| range.start <= base && end <= range.end;
                self.placement.memory.iter().any(room).then_some(Place::Memory(base))
            };
            *place = match info.kind {
                RegionKind::Memory32 if command & header::COMMAND_MEMORY != 0 => memory(register(bar) & !0xf),
                RegionKind::Memory64Prefetch if command & header::COMMAND_MEMORY != 0 => {
                    memory(register(bar + 1) << 32 | register(bar) & !0xf)
                }
                RegionKind::Io if command & header::COMMAND_IO != 0 => {
                    u16::try_from(register(bar) & !3).ok().filter(|base| *base != 0).map(Place::Ports)
                }
                _ => None,
            };
        }
        wanted
    }

    fn put(&self, bar: u8, place: Place) -> bool {
        let Some(info) = self.regions.get(usize::from(bar)) else { return false };
        let region = Region::Bar(bar);
        let device = Arc::new(OnBus {
            function: Arc::clone(&self.function),
            messages: Arc::clone(&self.messages),
            table: self.table,
            shortcuts: self.shortcuts.clone(),
            region,
            cut: pieces::is_cut(info.kind),
        });
        let result = match place {
            Place::Memory(base) => self.buses.put_memory(base, info.size, device),
            Place::Ports(base) => {
                self.buses.put_ports(base, u16::try_from(info.size).unwrap_or(u16::MAX), device)
            }
        };
        if let Err(error) = &result {
            log::warn!("BAR{bar} does not decode: {error}");
            return false;
        }
        if let (Some(shortcuts), Place::Memory(base)) = (&self.shortcuts, place) {
            shortcuts.windows.put(region, base, info.size);
            shortcuts.place(region, Some(base));
        }
        true
    }

    fn take(&self, bar: u8, place: Option<Place>) {
        match place {
            Some(Place::Memory(base)) => {
                self.buses.take_memory(base);
                if let Some(shortcuts) = &self.shortcuts {
                    shortcuts.windows.take(Region::Bar(bar));
                    shortcuts.place(Region::Bar(bar), None);
                }
            }
            Some(Place::Ports(base)) => self.buses.take_ports(base),
            None => {}
        }
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        let places = std::mem::take(self.places.get_mut().unwrap_or_else(PoisonError::into_inner));
        for (bar, place) in (0..).zip(places) {
            self.take(bar, place);
        }
        if let Some(map) = self.function.direct_map() {
            map.watch(None);
        }
        if let Some(owner) = self.function.message_owner() {
            owner.connect_message(None);
        }
        if let Some(queues) = self.function.queue_events() {
            queues.connect_messages(Vec::new());
        }
        self.function.connect_interrupts(None);
        self.function.dma_unmap_all();
    }
}
