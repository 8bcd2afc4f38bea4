import request from 'supertest'
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { type FollowUpEmail, key, type Rule, readConfig } from '../src/config.ts'
import { processEvent } from '../src/follow-ups/rules.ts'
import { createLog } from '../src/log.ts'
import { callsTo, patientDatabase, sendRow } from './support/sends.ts'
import { hexHmac, INBOXILI_SECRET, stripeSignature, testService } from './support/service.ts'

const database = await patientDatabase()
const { pool } = database
const sources = {
  stripe: { provider: 'stripe', secrets: ['whsec_test_A'] },
  'stripe-b': { provider: 'stripe', secrets: ['whsec_test_B'] },
  gocardless: { provider: 'gocardless', secrets: ['gc_secret'] },
  inboxili: { provider: 'inboxili', secrets: [INBOXILI_SECRET] },
}
const service = await testService(database, { sources })
const { deps, sandbox } = service

let number = 0
let invoice = ''
let to = ''

beforeEach(() => {
  number += 1
  invoice = `in_${number}`
  to = `in_${number}@example.com`
  service.clock.now = Date.now()
})

afterEach(() => {
  vi.restoreAllMocks()
  sandbox.disarm()
})

/** Puts rules in force, as a new configuration file would. */
const setRules = (...followUps: Rule[]) => {
  service.config.current = readConfig({ sources, followUps })
}

const email = (fields: Partial<FollowUpEmail> = {}): FollowUpEmail => ({
  key: key('invoice', invoice, 'paid'),
  to,
  from_email: 'billing@example.com',
  subject: 'Your receipt',
  html_body: '<p>Thank you</p>',
  ...fields,
})
const receipt: Rule = { name: 'receipt', source: 'stripe', type: 'invoice.paid', email: () => email() }
const rule = (name: string, ask: Rule['email']): Rule => ({ ...receipt, name, email: ask })

/** Posts a signed Stripe event; answers its row's id. */
async function post(eventId = `evt_${invoice}`, fields: object = {}, source = 'stripe'): Promise<string> {
  const body = JSON.stringify({ id: eventId, type: 'invoice.paid', livemode: true, data: { object: { id: invoice } }, ...fields })
  const secret = source === 'stripe' ? 'whsec_test_A' : 'whsec_test_B'
  await request(service.app)
    .post(`/webhooks/${source}`)
    .set('stripe-signature', stripeSignature(body, secret, Math.floor(service.clock.now / 1000)))
    .send(body)
    .expect(200)
  const { rows } = await pool.query<{ id: string }>('select id from webhook_events where source = $1 and event_id = $2', [
    source,
    eventId,
  ])
  return rows[0]?.id ?? ''
}

const eventRow = async (id: string) => {
  const { rows } = await pool.query(
    'select status, error, processed_at is not null as is_processed from webhook_events where id = $1',
    [id],
  )
  return rows[0]
}
const followUpsOf = async (id: string) => {
  const { rows } = await pool.query(
    'select rule, dedupe_key, outcome, error from follow_ups where event = $1 order by rule, dedupe_key',
    [id],
  )
  return rows
}
const paid = () => `invoice:${invoice}:paid`

describe('one event', () => {
  test('becomes one email, whose row names it', async () => {
    setRules(receipt)
    const id = await post()

    expect(await service.drain()).toEqual([])

    expect(callsTo(service, to)).toBe(1)
    expect(await eventRow(id)).toEqual({ status: 'processed', error: null, is_processed: true })
    expect(await followUpsOf(id)).toEqual([{ rule: 'receipt', dedupe_key: paid(), outcome: 'queued', error: null }])
    expect(await sendRow(pool, paid(), 'state', 'policy', 'recipient', 'source_event', 'requested_by')).toEqual({
      state: 'sent',
      policy: 'claim',
      recipient: to,
      source_event: id,
      requested_by: `event:${id}`,
    })
  })

  test('two workers that have its job do it once', async () => {
    const asked = vi.fn(() => email())
    setRules(rule('receipt', asked))
    const id = await post()

    await Promise.all([service.process(id), service.process(id), service.process(id)])
    await service.process(id)
    await service.drain()

    expect(callsTo(service, to)).toBe(1)
    const { rows } = await pool.query(`select from pgboss.job where name = 'send' and data ->> 'key' = $1`, [paid()])
    expect(rows).toHaveLength(1)
    expect(await sendRow(pool, paid(), 'version')).toEqual({ version: 4 })
  })

  test('two workers whose rules say different things, as around a new configuration, do what the first one was told', async () => {
    let asked = 0
    const both = Promise.withResolvers<void>()
    setRules(
      rule('receipt', async () => {
        asked += 1
        const answer = email({ key: `${invoice}:${asked}` })
        if (asked === 2) both.resolve()
        await both.promise
        return answer
      }),
    )
    const id = await post()

    await Promise.all([service.process(id), service.process(id)])
    await service.drain()

    expect(callsTo(service, to)).toBe(1)
    expect(await followUpsOf(id)).toHaveLength(1)
  })

  test('a crash between the rule and the commit leaves nothing, and the next run does it all', async () => {
    setRules(receipt)
    const id = await post()
    const crash = {
      pool,
      config: () => service.config.current,
      log: createLog('silent', 'test'),
      enqueue: async () => {
        throw Object.assign(new Error('the connection broke'), { code: '08006' })
      },
    }
    await expect(processEvent(crash, id, false)).rejects.toThrow('the connection broke')
    const left = [await eventRow(id), await followUpsOf(id), await sendRow(pool, paid(), 'state')]

    await service.drain()

    expect(left).toEqual([{ status: 'pending', error: null, is_processed: false }, [], undefined])
    expect(callsTo(service, to)).toBe(1)
  })

  test.each([2, 90 * 24])('C-19 that waited %i hours is followed up once, and once more by no replay', async (hours) => {
    setRules(receipt)
    const id = await post()
    await pool.query(`update webhook_events set received_at = now() - $2 * interval '1 h' where id = $1`, [id, hours])

    await service.drain()
    const replayed = await service.replay(id)
    await service.drain()

    expect(replayed).toEqual({ outcome: 'queued' })
    expect(callsTo(service, to)).toBe(1)
    expect(await eventRow(id)).toMatchObject({ status: 'processed' })
    expect(await followUpsOf(id)).toEqual([{ rule: 'receipt', dedupe_key: paid(), outcome: 'queued', error: null }])
  })

  test.each([['made.up.v9'], [undefined]])('C-33 of the type %s is ignored and sends nothing', async (type) => {
    setRules(receipt)
    const id = await post(`evt_${invoice}`, { type })

    await service.drain()

    expect(await eventRow(id)).toMatchObject({ status: 'ignored' })
    expect(callsTo(service, to)).toBe(0)
  })

  test('of the test mode is not mailed, not even by a replay', async () => {
    setRules(receipt)
    const id = await post(`evt_${invoice}`, { livemode: false })

    await service.drain()
    expect(await service.replay(id)).toEqual({ outcome: 'queued' })
    expect(await service.drain()).toEqual([])

    expect(await eventRow(id)).toMatchObject({ status: 'ignored', error: null })
    expect(callsTo(service, to)).toBe(0)
    expect(await followUpsOf(id)).toEqual([])
  })

  test('is told to its rule with what the service knows of it', async () => {
    const ask = vi.fn((_payload: unknown, _meta: unknown) => email())
    setRules(rule('receipt', ask))
    await post(`evt_${invoice}`, { created: 1_772_335_800 })

    await service.drain()

    expect(ask.mock.calls).toEqual([
      [
        { id: `evt_${invoice}`, type: 'invoice.paid', livemode: true, data: { object: { id: invoice } }, created: 1_772_335_800 },
        {
          source: 'stripe',
          eventId: `evt_${invoice}`,
          type: 'invoice.paid',
          livemode: true,
          occurredAt: new Date('2026-03-01T03:30:00Z'),
          receivedAt: expect.any(Date),
          superseded: false,
        },
      ],
    ])
  })
})

describe('several', () => {
  test('I3 two events of one fact make one email, and tell which of them caused it', async () => {
    setRules(receipt)
    const first = await post(`evt_${invoice}_a`)
    const second = await post(`evt_${invoice}_b`)

    await service.drain()

    expect(callsTo(service, to)).toBe(1)
    expect(await followUpsOf(first)).toMatchObject([{ dedupe_key: paid(), outcome: 'queued' }])
    expect(await followUpsOf(second)).toMatchObject([{ dedupe_key: paid(), outcome: 'held' }])
    expect(await eventRow(second)).toMatchObject({ status: 'processed', error: null })
    expect(await sendRow(pool, paid(), 'source_event')).toEqual({ source_event: first })
  })

  test('I3 ten events of one fact at once make one email', async () => {
    setRules(receipt)
    const ids = await Promise.all(Array.from({ length: 10 }, (_, index) => post(`evt_${invoice}_${index}`)))

    await Promise.all(ids.map((id) => service.process(id)))
    await service.drain()

    expect(callsTo(service, to)).toBe(1)
    const outcomes = (await Promise.all(ids.map(followUpsOf))).flat().map((it) => it.outcome)
    expect(outcomes.sort()).toEqual([...Array(9).fill('held'), 'queued'])
  })

  test('events that ask for the same emails in different order do not deadlock', async () => {
    const keys = Array.from({ length: 12 }, (_, index) => `${invoice}:${index}`)
    let calls = 0
    setRules(
      rule('batch', () => {
        calls += 1
        return (calls % 2 === 0 ? keys : keys.toReversed()).map((it) => email({ key: it }))
      }),
    )
    const ids = await Promise.all(Array.from({ length: 8 }, (_, index) => post(`evt_${invoice}_${index}`)))

    await Promise.all(ids.map((id) => service.process(id)))

    const { rows } = await pool.query(
      'select version, count(*)::int from email_sends where dedupe_key = any ($1) group by version',
      [keys],
    )
    expect(rows).toEqual([{ version: 1, count: 12 }])
  })

  test.each<[string, () => ReturnType<Rule['email']>, number]>([
    ['undefined', () => undefined, 0],
    ['null', () => null, 0],
    ['an empty list', () => [], 0],
    ['a promise of nothing', async () => undefined, 0],
    ['an unmet condition', () => false as const, 0],
    ['an empty address for a condition', () => '' as const, 0],
    ['a promise of an email', async () => email(), 1],
    ['a list of two', () => [email(), email({ key: `${invoice}:second` })], 2],
    ['a promise of a list with one key twice', async () => [email(), email()], 1],
  ])('a rule that returns %s', async (_, ask, emails) => {
    setRules(rule('receipt', ask))
    const id = await post()

    expect(await service.drain()).toEqual([])

    expect(callsTo(service, to)).toBe(emails)
    expect(await eventRow(id)).toMatchObject({ status: 'processed', error: null })
    expect((await followUpsOf(id)).map((it) => it.outcome)).toEqual(Array(emails).fill('queued'))
  })

  test('each rule of an event has its own email; rules of other types and sources are not asked', async () => {
    const never = vi.fn(() => email({ key: 'never' }))
    setRules(
      receipt,
      rule('thanks', () => email({ key: key('invoice', invoice, 'thanks') })),
      { ...receipt, name: 'other type', type: ['invoice.voided', 'invoice.sent'], email: never },
      { ...receipt, name: 'other source', source: 'stripe-b', email: never },
    )
    const id = await post()

    await service.drain()

    expect(callsTo(service, to)).toBe(2)
    expect(never).not.toHaveBeenCalled()
    expect(await followUpsOf(id)).toMatchObject([
      { rule: 'receipt', dedupe_key: paid() },
      { rule: 'thanks', dedupe_key: `invoice:${invoice}:thanks` },
    ])
  })

  test('C-43 an email that Inboxili refuses does not hurt its neighbours', async () => {
    setRules({
      name: 'payments',
      source: 'gocardless',
      type: 'payments.confirmed',
      email: ({ id, details }) => email({ key: key('payment', id), to: details.to }),
    })
    sandbox.arm({ kind: 'status', status: 422, code: 'validation_error', message: 'no such domain' }, { to: `e2_${to}` })
    const body = JSON.stringify({
      events: [1, 2, 3].map((it) => ({
        id: `EV${number}${it}`,
        resource_type: 'payments',
        action: 'confirmed',
        created_at: '2026-11-29T12:00:00Z',
        details: { to: `e${it}_${to}` },
      })),
    })
    const deliver = () =>
      request(service.app)
        .post('/webhooks/gocardless')
        .set('webhook-signature', hexHmac(body, 'gc_secret'))
        .send(body)
        .expect(200)
    await deliver()
    await service.drain()

    await deliver()
    await service.drain()

    expect([1, 2, 3].map((it) => callsTo(service, `e${it}_${to}`))).toEqual([1, 1, 1])
    const { rows } = await pool.query(
      `select dedupe_key, status, last_error from email_sends where recipient like $1 order by dedupe_key`,
      [`e_\\_${to}`],
    )
    expect(rows).toEqual([
      { dedupe_key: `payment:EV${number}1`, status: 'sent', last_error: null },
      { dedupe_key: `payment:EV${number}2`, status: 'rejected', last_error: '422 validation_error: no such domain' },
      { dedupe_key: `payment:EV${number}3`, status: 'sent', last_error: null },
    ])
  })
})

describe('what goes wrong', () => {
  test('C-49 a rule that throws shows at once, hurts no neighbour, and after the fix sends exactly one email', async () => {
    const broken = rule('receipt', () => {
      throw new TypeError("can't read 'number' of undefined")
    })
    const thanks = rule('thanks', () => email({ key: `${invoice}:thanks`, to: `thanks_${to}` }))
    setRules(broken, thanks)
    const id = await post()
    const first = await service.drain()
    const shown = [await eventRow(id), await followUpsOf(id)]
    await post()
    const second = await service.drain()
    const callsBefore = [callsTo(service, to), callsTo(service, `thanks_${to}`)]

    setRules(receipt, thanks)
    const third = await service.drain()

    expect([first, second].map((errors) => errors.map(String))).toEqual(
      Array(2).fill([`Error: event ${id} is not processed yet; the queue tries again`]),
    )
    const error = "TypeError: can't read 'number' of undefined"
    expect(shown).toEqual([
      { status: 'pending', error: `receipt: ${error}`, is_processed: false },
      [
        { rule: 'receipt', dedupe_key: null, outcome: 'failed', error },
        { rule: 'thanks', dedupe_key: `${invoice}:thanks`, outcome: 'queued', error: null },
      ],
    ])
    expect(callsBefore).toEqual([0, 1])
    expect(third).toEqual([])
    expect([callsTo(service, to), callsTo(service, `thanks_${to}`)]).toEqual([1, 1])
    expect(await eventRow(id)).toEqual({ status: 'processed', error: null, is_processed: true })
    expect(await followUpsOf(id)).toEqual([
      { rule: 'receipt', dedupe_key: paid(), outcome: 'queued', error: null },
      { rule: 'thanks', dedupe_key: `${invoice}:thanks`, outcome: 'queued', error: null },
    ])
  })

  test('C-49 the last try makes the event failed; a replay after the fix sends', async () => {
    setRules(rule('receipt', async () => Promise.reject(new Error('template missing'))))
    const id = await post()
    await service.process(id, true)
    const failed = await eventRow(id)
    await service.process(id)

    setRules(receipt)
    await service.replay(id)
    await service.drain()

    expect(failed).toEqual({ status: 'failed', error: 'receipt: Error: template missing', is_processed: false })
    expect(callsTo(service, to)).toBe(1)
    expect(await eventRow(id)).toMatchObject({ status: 'processed', error: null })
  })

  test('what a rule throws is shown without the addresses in it', async () => {
    setRules(
      rule('receipt', () => {
        throw new TypeError(`nobody knows ${to}\0 <Ada.L+1@example.org>`)
      }),
    )
    const id = await post()
    await service.process(id, true)

    const error = 'TypeError: nobody knows [address] <[address]>'
    expect(await eventRow(id)).toMatchObject({ status: 'failed', error: `receipt: ${error}` })
    expect(await followUpsOf(id)).toEqual([{ rule: 'receipt', dedupe_key: null, outcome: 'failed', error }])
  })

  test('C-64 a key that cannot be built fails the event at once, and its neighbour goes out', async () => {
    const ask = vi.fn(() => email({ key: key('invoice', undefined as unknown as string, 'paid') }))
    setRules(
      rule('receipt', ask),
      rule('thanks', () => email({ key: `${invoice}:thanks` })),
    )
    const id = await post()

    expect(await service.drain()).toEqual([])
    expect(await service.drain()).toEqual([])

    expect(ask).toHaveBeenCalledTimes(1)
    expect(await eventRow(id)).toEqual({
      status: 'failed',
      error: 'receipt: KeyError: cannot build key: part 2 is missing',
      is_processed: false,
    })
    expect(callsTo(service, to)).toBe(1)
  })

  test.each<[string, object, string]>([
    ['no key', { key: undefined }, 'key: Invalid input: expected string, received undefined'],
    ['a key with NUL', { key: 'a\0b' }, 'key: must be a text without control characters'],
    ['half a character in its key', { key: 'a\ud800' }, 'key: must be a text without control characters'],
    ['a blank key', { key: '  ' }, 'key: must not be empty'],
    ['a key that no path can hold', { key: '..' }, 'key: must not be . or .., which no path can hold'],
    [
      'more template data than may be',
      { template_data: Object.fromEntries(Array.from({ length: 2_001 }, (_, index) => [`k${index}`, 1])) },
      'template_data: has more than 2,000 values',
    ],
    [
      'a number that has lost digits',
      { template_data: { lines: [2 ** 53] } },
      'template_data: has an integer beyond 2^53, which would lose digits: write it as a string',
    ],
    ['no recipient', { to: null }, 'to: Invalid input: expected string, received undefined'],
    ['an address that is none', { to: 'ada' }, 'to: not an email address'],
    ['an unknown field', { 'b\0cc': 'eve@example.com' }, 'Unrecognized key: "bcc"'],
    ['no content', { html_body: undefined }, 'needs template_id, html_body or text_body'],
    [
      'a policy that does not exist',
      { policy: 'hope' },
      'policy: Invalid option: expected one of "claim"|"per_period"|"timestamp"|"prefer_duplicate"',
    ],
    ['template data that is no JSON', { template_data: { a: { 'n\0': 1n } } }, 'template_data.a: Invalid input'],
    ['two faults', { to: 'ada', from_email: 'b' }, 'to: not an email address; from_email: not an email address'],
  ])('an email with %s fails the event with a clear error', async (_, fields, problem) => {
    setRules(
      rule('receipt', () => email(fields)),
      rule('thanks', () => email({ key: `${invoice}:thanks` })),
    )
    const id = await post()

    expect(await service.drain()).toEqual([])

    expect(await eventRow(id)).toEqual({
      status: 'failed',
      error: `receipt: the email is not usable: ${problem}`,
      is_processed: false,
    })
    expect(callsTo(service, to)).toBe(1)
  })

  test.each([['a text'], [42], [true]])('a rule that returns %j fails the event with a clear error', async (returned) => {
    setRules(rule('receipt', () => returned as unknown as undefined))
    const id = await post()

    expect(await service.drain()).toEqual([])

    expect(await eventRow(id)).toMatchObject({
      status: 'failed',
      error: expect.stringMatching(/^receipt: the email is not usable: /),
    })
  })

  test('an email with NUL and half characters from its payload is cleaned and goes out', async () => {
    setRules(
      rule('receipt', () =>
        email({ subject: `a\0${'x'.repeat(497)}😀`, html_body: 'a\0\ud800', template_data: { 'k\udc00': 'v\0' } }),
      ),
    )
    const id = await post()

    expect(await service.drain()).toEqual([])

    expect(await eventRow(id)).toMatchObject({ status: 'processed' })
    expect(sandbox.ledger.at(-1)?.message).toMatchObject({ html_body: 'a\ufffd', template_data: { 'k\ufffd': 'v' } })
  })

  test('policy timestamp: a second key of the kind is the first email, and the event says which', async () => {
    setRules(rule('welcome', ({ id }) => email({ key: `welcome:${invoice}:${id}`, policy: 'timestamp' })))
    const first = await post(`evt_${invoice}_a`)
    const second = await post(`evt_${invoice}_b`)

    expect(await service.drain()).toEqual([])

    expect(callsTo(service, to)).toBe(1)
    const held = `welcome:${invoice}:evt_${invoice}_a`
    expect(await followUpsOf(first)).toEqual([{ rule: 'welcome', dedupe_key: held, outcome: 'queued', error: null }])
    expect(await followUpsOf(second)).toEqual([{ rule: 'welcome', dedupe_key: held, outcome: 'held', error: null }])
    expect(await eventRow(second)).toEqual({ status: 'processed', error: null, is_processed: true })
  })

  test.each([
    ['per_period', 'receipt: the email is not usable: key: policy per_period needs a period as its last part'],
    [
      'unguarded',
      'receipt: the email is not usable: policy: Invalid option: expected one of "claim"|"per_period"|"timestamp"|"prefer_duplicate"',
    ],
  ])('policy %s that does not fit fails the event', async (policy, error) => {
    setRules(rule('receipt', () => email({ policy: policy as 'per_period' })))
    const id = await post()

    expect(await service.drain()).toEqual([])

    expect(await eventRow(id)).toEqual({ status: 'failed', error, is_processed: false })
    expect(callsTo(service, to)).toBe(0)
  })

  test('C-66 a key without the tenant: the second follow-up fails visibly, and the first email stays as it was', async () => {
    setRules(rule('receipt', ({ data }) => email({ to: data.object.to })))
    const first = await post(`evt_${invoice}_a`, { data: { object: { to } } })
    const second = await post(`evt_${invoice}_b`, { data: { object: { to: `other_${to}` } } })

    expect(await service.drain()).toEqual([])

    expect([callsTo(service, to), callsTo(service, `other_${to}`)]).toEqual([1, 0])
    const error = `key_taken: ${paid()} belongs to a send to another recipient`
    expect(await eventRow(first)).toMatchObject({ status: 'processed' })
    expect(await eventRow(second)).toEqual({ status: 'failed', error: `receipt: ${error}`, is_processed: false })
    expect(await followUpsOf(second)).toEqual([{ rule: 'receipt', dedupe_key: paid(), outcome: 'key_taken', error }])
    expect(await sendRow(pool, paid(), 'recipient', 'source_event')).toEqual({ recipient: to, source_event: first })
  })

  test('C-66 with the tenant in the key both go out', async () => {
    setRules(
      rule('a', () => email({ key: key('tenant-a', invoice, 'paid') })),
      { ...receipt, name: 'b', source: 'stripe-b', email: () => email({ key: key('tenant-b', invoice, 'paid'), to: `b_${to}` }) },
    )
    await post()
    await post(`evt_${invoice}`, {}, 'stripe-b')

    expect(await service.drain()).toEqual([])

    expect([callsTo(service, to), callsTo(service, `b_${to}`)]).toEqual([1, 1])
  })

  test('another spelling of the same address is not another recipient', async () => {
    setRules(rule('receipt', ({ data }) => email({ to: data.object.to })))
    await post(`evt_${invoice}_a`, { data: { object: { to } } })
    const second = await post(`evt_${invoice}_b`, { data: { object: { to: to.toUpperCase() } } })

    expect(await service.drain()).toEqual([])

    expect(await eventRow(second)).toMatchObject({ status: 'processed' })
    expect(callsTo(service, to)).toBe(1)
  })

  test('I6 what no rule is to blame for shows as well, and ends as failed', async () => {
    setRules(receipt)
    const id = await post()
    const broken = {
      pool,
      config: () => service.config.current,
      log: createLog('silent', 'test'),
      enqueue: async () => Promise.reject(new Error('a bug')),
    }

    await expect(processEvent(broken, id, false)).rejects.toThrow(`event ${id} is not processed yet`)
    const shown = await eventRow(id)
    await processEvent(broken, id, true)

    expect(shown).toEqual({ status: 'pending', error: 'Error: a bug', is_processed: false })
    expect(await eventRow(id)).toEqual({ status: 'failed', error: 'Error: a bug', is_processed: false })
    expect(await followUpsOf(id)).toEqual([])
  })

  test('I6 a source that is no longer configured shows, and ends as failed', async () => {
    setRules({ ...receipt, source: 'stripe-b' })
    const id = await post(`evt_${invoice}`, {}, 'stripe-b')
    const { 'stripe-b': _, ...others } = sources
    service.config.current = readConfig({ sources: others, followUps: [] })

    await expect(service.process(id)).rejects.toThrow()
    const shown = await eventRow(id)
    await service.process(id, true)

    expect(shown).toEqual({ status: 'pending', error: 'source stripe-b is not configured', is_processed: false })
    expect(await eventRow(id)).toMatchObject({ status: 'failed' })
  })

  /** Hands over the timers of the rules, to be run by hand; all others, some of them of that length, go their way. */
  function takeRuleTimers(onTimer: (run: () => void) => void) {
    const real = globalThis.setTimeout
    vi.spyOn(globalThis, 'setTimeout').mockImplementation(((run: () => void, ms?: number, ...rest: []) => {
      if (ms === 10_000 && new Error().stack?.includes('answers.ts')) onTimer(run)
      return real(run, ms, ...rest)
    }) as typeof setTimeout)
  }

  test('a rule that never answers is given up after its time', async () => {
    takeRuleTimers((run) => queueMicrotask(run))
    setRules(rule('receipt', () => new Promise<undefined>(() => undefined)))
    const id = await post()

    await expect(service.process(id)).rejects.toThrow()

    expect(await eventRow(id)).toMatchObject({ status: 'pending', error: 'receipt: Error: the rule gave no answer within 10 s' })
  })

  test('a rule that throws at once leaves no late rejection that would end its worker', async () => {
    const timers: (() => void)[] = []
    takeRuleTimers((run) => timers.push(run))
    const unhandled: unknown[] = []
    const onUnhandled = (reason: unknown) => void unhandled.push(reason)
    process.on('unhandledRejection', onUnhandled)
    setRules(
      rule('receipt', () => {
        throw new Error('no such field')
      }),
    )
    const id = await post()

    await expect(service.process(id)).rejects.toThrow()
    for (const run of timers) run()
    await new Promise(setImmediate)
    process.off('unhandledRejection', onUnhandled)

    expect(timers.length).toBe(1)
    expect(unhandled).toEqual([])
  })
})

test('C-20 a delivery event sends nothing, and is processed once by many workers', async () => {
  setRules(receipt)
  await post()
  sandbox.arm({ kind: 'ok', messageId: `m_${invoice}` })
  await service.drain()
  const body = JSON.stringify({ event: 'delivered', message_id: `m_${invoice}` })
  await request(service.app)
    .post('/webhooks/inboxili')
    .set('x-inboxili-signature', hexHmac(body, INBOXILI_SECRET))
    .set('content-type', 'application/json')
    .send(body)
    .expect(200)
  const { rows } = await pool.query<{ id: string }>(
    `select id from webhook_events where source = 'inboxili' and status = 'pending'`,
  )
  const id = rows[0]?.id ?? ''

  await Promise.all([service.process(id), service.process(id), service.process(id), service.process(id)])

  expect(await eventRow(id)).toMatchObject({ status: 'processed' })
  expect(await sendRow(pool, paid(), 'status')).toEqual({ status: 'delivered' })
  expect(callsTo(service, to)).toBe(1)
})

test('the job of a send goes to its send', async () => {
  setRules(receipt)
  const id = await post()
  await service.process(id)

  expect(
    await deps.pool.query(`select data from pgboss.job where name = 'send' and data ->> 'key' = $1`, [paid()]),
  ).toMatchObject({
    rows: [{ data: { key: paid() } }],
  })
})
