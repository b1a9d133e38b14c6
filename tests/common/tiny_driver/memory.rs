//! VRAM, system memory and address spaces.

use super::*;

impl TinyDriver {
    pub fn alloc(&mut self, size: u64, align: u64) -> u64 {
        let start = self.next_vram.next_multiple_of(align);
        self.next_vram = start + size;
        assert!(self.next_vram <= self.vram_size.min(BAR3_VRAM), "the tiny driver is out of VRAM");
        start
    }

    /// Writes VRAM: through BAR3 once it is up, through PRAMIN before.
    pub fn write_vram(&mut self, address: u64, data: &[u8]) {
        let through_bar3 = self.bar3_is_up;
        for (piece, at) in data.chunks(8).zip((address..).step_by(8)) {
            if through_bar3 {
                self.function.write(Region::Bar(3), at, piece).unwrap();
            } else {
                let (window, offset) = ((at >> 16) as u32, at & 0xffff);
                if window != self.window {
                    self.write(pbus::NV_PBUS_BAR0_WINDOW, window);
                    self.window = window;
                }
                self.function.write(Region::Bar(0), 0x70_0000 + offset, piece).unwrap();
            }
        }
    }

    pub fn read_vram(&self, address: u64, data: &mut [u8]) {
        for (piece, at) in data.chunks_mut(8).zip((address..).step_by(8)) {
            self.function.read(Region::Bar(3), at, piece).unwrap();
        }
    }

    pub fn write_vram_u64(&mut self, address: u64, value: u64) {
        self.write_vram(address, &value.to_le_bytes());
    }

    pub fn write_vram_u32(&mut self, address: u64, value: u32) {
        self.write_vram(address, &value.to_le_bytes());
    }

    pub fn read_vram_u32(&self, address: u64) -> u32 {
        let mut data = [0; 4];
        self.read_vram(address, &mut data);
        u32::from_le_bytes(data)
    }

    pub fn zero(&mut self, address: u64, size: u64) {
        let zeros = vec![0; 0x1000];
        for at in (address..address + size).step_by(0x1000) {
            self.write_vram(at, &zeros);
        }
    }

    /// Offers `size` bytes of system memory at `iova`.
    pub fn system_ram(&self, iova: u64, size: u64) -> SystemRam {
        let fd = create_memory_file(c"ram", size).unwrap();
        let memory = Mapping::of_file(fd.as_fd(), 0, size, Access::ReadWrite).unwrap();
        let backing = Some(DmaBacking { fd, offset: 0 });
        self.function.dma_map(DmaMapping { iova, size, writable: true, backing, owner: None }).unwrap();
        SystemRam { iova, memory }
    }

    pub fn new_space(&mut self) -> Space {
        let size = LargePages::K128.directory_entries() * 8;
        let directory = self.alloc(size, 0x1000);
        self.zero(directory, size);
        Space { directory, tables: BTreeMap::new() }
    }

    /// A space with one table, for its first addresses, of which nothing else is written yet.
    pub(super) fn space_with_table(&mut self) -> (Space, u64) {
        let directory = self.alloc(LargePages::K128.directory_entries() * 8, 0x1000);
        let table = self.alloc(LargePages::K128.table_entries(12) * 8, 0x1000);
        self.write_vram_u64(directory, Pde { large: None, small: Some(vram(table)) }.encode());
        (Space { directory, tables: BTreeMap::from([(0, table)]) }, table)
    }

    /// Empties a directory of so many entries behind its first one.
    pub(super) fn zero_but_first_entry(&mut self, directory: u64, entries: u64) {
        (1..entries).for_each(|entry| self.write_vram_u64(directory + entry * 8, 0));
    }

    /// Maps whole small pages; no flush.
    pub fn map(&mut self, space: &mut Space, va: u64, target: PhysicalAddress, size: u64) {
        for offset in (0..size).step_by(0x1000) {
            let target = PhysicalAddress { address: target.address + offset, ..target };
            let pte = Pte { target, read_only: false, privileged: false, kind: 0 };
            self.write_pte(space, va + offset, pte.encode());
        }
    }

    /// Writes one small-page entry as it is.
    pub fn write_pte(&mut self, space: &mut Space, va: u64, raw: u64) {
        let index = LargePages::K128.directory_index(va);
        let table = match space.tables.get(&index) {
            Some(table) => *table,
            None => {
                let size = LargePages::K128.table_entries(12) * 8;
                let table = self.alloc(size, 0x1000);
                self.zero(table, size);
                let pde = Pde { large: None, small: Some(vram(table)) };
                self.write_vram_u64(space.directory + index * 8, pde.encode());
                space.tables.insert(index, table);
                table
            }
        };
        self.write_vram_u64(table + LargePages::K128.table_index(va, 12) * 8, raw);
    }

    pub fn flush(&self, space: &Space) {
        self.poll(pfb::NV_PFB_PRI_MMU_CTRL, "a free flush slot", |value| value & 0xff_0000 != 0);
        self.write(pfb::NV_PFB_PRI_MMU_INVALIDATE_PDB, (space.directory >> 12 << 4) as u32);
        self.write(pfb::NV_PFB_PRI_MMU_INVALIDATE, 0x8000_0001);
        self.poll(pfb::NV_PFB_PRI_MMU_CTRL, "the flush", |value| value & 0x8000 != 0);
    }
}
