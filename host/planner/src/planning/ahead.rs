//! The orders after the one that is being placed, and whether they find room.

use super::Planning;
use super::room::Room;
use super::scale_up::Wanted;

impl Planning<'_> {
    /// What is left once the machine of this order has its place there.
    pub(super) fn room_beside(&self, place: u32) -> Option<Room> {
        let wanted = &self.placing.wanted[self.placing.next];
        let offer = &self.pools[wanted.pool].offers[wanted.order.offer];
        let site = offer.sites[place as usize].as_ref().ok()?;
        let mut room = self.placing.room.clone();
        room.take(site, offer.size);
        Some(room)
    }

    /// How many of these orders find room, each taking its own: where packing found it, or else elsewhere.
    pub(super) fn placeable<'o>(&self, mut room: Room, orders: &'o [Wanted]) -> usize {
        let finds_room = |wanted: &&'o Wanted| self.find_room(&mut room, wanted);
        orders.iter().filter(finds_room).count()
    }

    /// Takes room for this order, where there is some.
    pub(super) fn find_room(&self, room: &mut Room, wanted: &Wanted) -> bool {
        let offer = &self.pools[wanted.pool].offers[wanted.order.offer];
        let has_room = |place: &usize| match &offer.sites[*place] {
            Ok(site) => room.has_room(site, offer.size),
            Err(_) => false,
        };
        let own = Some(wanted.order.site).filter(has_room);
        let place = own.or_else(|| offer.site_with_room(&wanted.order.sites, room));
        if let Some(Ok(site)) = place.map(|place| &offer.sites[place]) {
            room.take(site, offer.size);
        }
        place.is_some()
    }

    /// The orders after this one, those of the next ticks too.
    pub(super) fn later_orders(&self) -> &[Wanted] {
        self.placing
            .wanted
            .get(self.placing.next + 1..)
            .unwrap_or_default()
    }
}
