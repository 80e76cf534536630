//! The orders after the one that is being placed, and whether they find room.

use super::scale_up::Wanted;
use crate::planning::Planning;
use crate::planning::hypervisors::room::Room;

impl Planning<'_> {
    /// What is left once the machine of this order has this place of the pool's list. `None`: nothing can be made there.
    pub(in crate::planning) fn room_beside(&self, place: u32) -> Option<Room> {
        let wanted = &self.placing.wanted[self.placing.next];
        let offer = &self.pools[wanted.pool].offers[wanted.order.offer];
        offer.sites[place as usize].as_ref().ok()?;
        let mut room = self.placing.room.clone();
        offer.take_room(place as usize, &mut room);
        Some(room)
    }

    /// How many of these orders find room, each taking its own: where packing found it, or else elsewhere.
    pub(in crate::planning) fn placeable<'o>(&self, mut room: Room, orders: &'o [Wanted]) -> usize {
        let finds_room = |wanted: &&'o Wanted| self.find_room(&mut room, wanted);
        orders.iter().filter(finds_room).count()
    }

    /// Takes room for this order, where there is some.
    pub(in crate::planning) fn find_room(&self, room: &mut Room, wanted: &Wanted) -> bool {
        let offer = &self.pools[wanted.pool].offers[wanted.order.offer];
        let own = Some(wanted.order.site).filter(|place| offer.has_room(*place, room));
        let place = own.or_else(|| offer.site_with_room(&wanted.order.sites, room));
        if let Some(place) = place {
            offer.take_room(place, room);
        }
        place.is_some()
    }

    /// The orders after this one, those of the next ticks too.
    pub(in crate::planning) fn later_orders(&self) -> &[Wanted] {
        self.placing
            .wanted
            .get(self.placing.next + 1..)
            .unwrap_or_default()
    }
}
