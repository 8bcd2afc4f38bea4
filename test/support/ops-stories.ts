import { planRun } from '../../src/events/runs.ts'
import { createToken } from '../../src/ops/tokens.ts'
import { createView } from '../../src/ops/views.ts'
import type { TestDatabase } from './database.ts'
import { type OpsStage, paidInvoice } from './ops-stage.ts'

/** What strangers may write, wherever they can write. */
export const hostile = {
  name: '<img src=x onerror=alert(1)>',
  type: '"></td><script>alert(1)</script>',
  id: '<svg onload=alert(1)>',
}
/** Signs that mean something in an address, of which every one must come back. */
export const ODD_NUMBER = '50%/INV?7#"🧾'
const BIG =
  '{"id":"evt_big","object":"event","type":"invoice.updated","created":1764400000,"livemode":true,"data":{"object":{"id":"in_big","amount":10.00,"big":9007199254740993,"note":"a\\u202eb"}}}'

export interface Stories {
  /** The row of an event, by the provider's ID. */
  event(id: string): string
  run: string
  /** Every screen, with what there is to see on it. */
  screens: readonly (readonly [name: string, path: string])[]
}

/** Fills a stage with everything that a page can show: each status, each kind of trouble, and what strangers wrote. */
export async function tellStories(
  { pool }: TestDatabase,
  stage: OpsStage,
  { withStrangers = true }: { withStrangers?: boolean } = {},
): Promise<Stories> {
  const { service } = stage
  const { sandbox } = service
  const by = { actor: 'person:mia', via: 'page' }
  const post = async (id: string, number: string, email: string, more: object = {}) => {
    await stage.postStripe(paidInvoice(id, number, email, more))
    await service.drain()
  }

  // One that all went well with, and that came again: with the same bytes, and with other content.
  const paid = paidInvoice('evt_1042', 'INV-1042', 'ada@example.com')
  await stage.postStripe(paid)
  await stage.work()
  await stage.postStripe(paid)
  await stage.postStripe(paid.replace('"livemode":true', '"livemode":true,"amount":12.00'))
  await post('evt_1043', 'INV-1042', 'ada@example.com')
  sandbox.armReports({ kind: 'bounced' })
  await post('evt_1044', 'INV-1044', 'di@example.com')
  if (withStrangers) await post('evt_odd', ODD_NUMBER, 'odd@example.com')
  await stage.work()

  // Nobody knows, with a report that fits one of them only by its recipient; refused; not confirmed.
  sandbox.armReports({ kind: 'never' }, { times: 'always' })
  sandbox.arm({ kind: 'cut_after_accept' }, { times: withStrangers ? 4 : 3 })
  await post('evt_1050', 'INV-1050', 'bob@example.com')
  await post('evt_1051', 'INV-1051', 'cy@example.com')
  await post('evt_1052', 'INV-1052', 'cy@example.com')
  if (withStrangers) await post('evt_hostile', hostile.name, 'eve@example.com', { customer_name: hostile.name })
  service.config.current = { ...service.config.current, account: 'shared' }
  await stage.report({ event: 'delivered', recipient: 'bob@example.com', timestamp: new Date().toISOString() })
  if (withStrangers) await stage.report({ event: 'delivered', recipient: hostile.name, message_id: hostile.id })
  const refusal = withStrangers ? hostile.name : 'verify the sender first'
  sandbox.arm({ kind: 'status', status: 422, code: 'sender_not_verified', message: refusal })
  await post('evt_1060', 'INV-1060', 'fay@example.com')
  if (withStrangers) await post('evt_1061', `INV-${'1061-'.repeat(30)}`, `${'gus.'.repeat(15)}@example.com`)

  // Events that no rule wants, that can't be read, or whose email can't be made.
  const event = (id: string, type: string, object: object) =>
    stage.postStripe(JSON.stringify({ id, object: 'event', type, created: 1_764_400_000, livemode: false, data: { object } }))
  await event('evt_dispute', 'charge.disputed', { id: 'dp_77' })
  if (withStrangers) await event(hostile.id, hostile.type, { id: 'in_hostile', name: hostile.name })
  await event('evt_failed', 'invoice.paid', { id: 'in_1', number: 'INV-1070', customer_email: hostile.name })
  await stage.postStripe(BIG)
  await stage.postStripe('this is not JSON')
  await stage.postStripe(paid, 'whsec_of_somebody_else')
  await service.drain()
  await pool.query(`update email_sends set queued_at = queued_at - interval '5 hours' where dedupe_key = 'invoice:INV-1050:paid'`)

  await createView(pool, { screen: 'events', name: withStrangers ? hostile.name : 'Failed', query: 'status=failed' }, by)
  await createView(pool, { screen: 'sends', name: 'Bounced', query: 'status=bounced' }, by)
  await createToken(pool, { name: 'nightly', role: 'reader', ...by })
  const { id: run } = await planRun(stage.deps.runs, { source: 'stripe', status: ['processed'] }, true, 'person:mia')

  const { rows } = await pool.query<{ id: string; event_id: string }>('select id, event_id from webhook_events')
  const idOf = (eventId: string) => rows.find(({ event_id }) => event_id === eventId)?.id ?? ''
  const send = (number: string) => `/ops/sends/${encodeURIComponent(`invoice:${number}:paid`)}`
  return {
    event: idOf,
    run,
    screens: [
      ['overview', '/ops'],
      ['overview, wrong range', '/ops?range=1y'],
      ['charts', '/ops/charts'],
      ['sending', '/ops/sending'],
      ['review', '/ops/review'],
      ['review of a hostile one', `/ops/review?key=${encodeURIComponent(`invoice:${hostile.name}:paid`)}`],
      ['review, reports', '/ops/review?tab=reports'],
      ['review, events', '/ops/review?tab=events'],
      ['review, sending log', '/ops/review/log'],
      ['review, send again', `/ops/review/again/${encodeURIComponent('invoice:INV-1051:paid')}`],
      ['sends', '/ops/sends'],
      ['sends, wrong filter', `/ops/sends?status=nothing&q=${encodeURIComponent(hostile.name)}`],
      ['sends, none', '/ops/sends?q=INV-9999'],
      ['send, delivered', send('INV-1042')],
      ['send, bounced', send('INV-1044')],
      ['send, needs a decision', send('INV-1050')],
      ['send, refused', send('INV-1060')],
      ['send, not confirmed, long', send(`INV-${'1061-'.repeat(30)}`)],
      ['send, odd key', send(ODD_NUMBER)],
      ['send, hostile', send(hostile.name)],
      ['send, missing', send(hostile.id)],
      ['events', '/ops/events'],
      ['events, wrong filter', `/ops/events?since=${encodeURIComponent(hostile.name)}`],
      ['event', `/ops/events/${idOf('evt_1042')}`],
      ['event, redeliveries', `/ops/events/${idOf('evt_1042')}?tab=redeliveries`],
      ['event, conflicts', `/ops/events/${idOf('evt_1042')}?tab=conflicts`],
      ['event, hostile', `/ops/events/${idOf(hostile.id)}`],
      ['event, raw', `/ops/events/${idOf(hostile.id)}?tab=raw`],
      ['event, headers', `/ops/events/${idOf(hostile.id)}?tab=headers`],
      ['event, failed', `/ops/events/${idOf('evt_failed')}`],
      ['event, big numbers', `/ops/events/${idOf('evt_big')}`],
      ['replays', '/ops/replays'],
      ['replay', `/ops/replays/${run}`],
      ['replay of one', `/ops/replays/new?event=${idOf('evt_1042')}`],
      ['sources', '/ops/sources'],
      ['source', '/ops/sources/stripe'],
      ['audit', '/ops/audit'],
      ['sandbox', '/ops/sandbox'],
      ['search', '/ops/search?q=INV'],
      ['search, none', `/ops/search?q=${encodeURIComponent(hostile.type)}`],
      ['settings', '/ops/settings'],
      ['settings, people', '/ops/settings/people'],
      ['settings, tokens', '/ops/settings/tokens'],
      ['settings, views', '/ops/settings/views'],
      ['settings, configuration', '/ops/settings/configuration'],
      ['missing', '/ops/nothing'],
      ['sign in', '/ops/sign-in'],
    ],
  }
}
