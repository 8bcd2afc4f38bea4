import { beforeEach, describe, expect, test } from 'vitest'
import { readConfig, type UserConfig } from '../src/config.ts'
import { replayEvent } from '../src/events/replay.ts'
import { emptyOldBodies } from '../src/events/sweeps.ts'
import type { Provider } from '../src/providers/provider.ts'
import { testDatabase } from './support/database.ts'
import { withProvider } from './support/made-up.ts'
import { countRows, emptyTables, listen, sha256Hex, signed, sources, storedEvents } from './support/posting.ts'
import { testService } from './support/service.ts'

const followUps: UserConfig['followUps'] = [
  {
    source: 'generic',
    type: 'paid',
    email: ({ id }) => ({
      key: `paid:${id}`,
      to: 'ada@example.com',
      from_email: 'billing@example.com',
      subject: 'Paid',
      html_body: 'Paid',
    }),
  },
]
const database = await testDatabase()
const service = await testService(database, { sources, followUps })
const { post } = await listen(service.app)
const configure = (config: UserConfig) => {
  service.config.current = readConfig(config)
}
beforeEach(async () => {
  await emptyTables(database)
  configure({ sources, followUps })
})

const postGeneric = (body: string) => post('/webhooks/generic', body, signed.generic(body))
const rowOf = async (eventId: string) => (await storedEvents(database)).find((event) => event.event_id === eventId)
const sendKeys = async () =>
  (await database.pool.query('select dedupe_key from email_sends order by 1')).rows.map((row) => row.dedupe_key)
const audits = async (id: string) =>
  (await database.pool.query('select actor, via, action, before from audit_log where subject = $1 order by id', [`event:${id}`]))
    .rows

describe('the replay of a quarantined event', () => {
  const elsewhere = '{"ref":"r1","kind":"paid"}'

  test('reads it anew after the configuration was mended, as if it came now', async () => {
    await postGeneric(elsewhere)
    const [quarantined] = await storedEvents(database)
    const id = quarantined?.id ?? ''
    const before = await service.replay(id)
    configure({ sources: { ...sources, generic: { ...sources.generic, id: 'ref', type: 'kind' } }, followUps })

    const replayed = await service.replay(id)
    const replayedAgain = await service.replay(id)
    const redelivered = await postGeneric(elsewhere)
    expect(await service.drain()).toEqual([])

    expect(before).toEqual({ outcome: 'still_unusable' })
    expect(replayed).toEqual({ outcome: 'read', events: [{ id: 'r1', type: 'paid', status: 'accepted' }] })
    expect(replayedAgain).toEqual({ outcome: 'read', events: [{ id: 'r1', type: 'paid', status: 'duplicate' }] })
    expect(redelivered.json.events).toEqual([{ id: 'r1', type: 'paid', status: 'duplicate' }])
    expect((await storedEvents(database)).map((event) => [event.event_id, event.body?.toString()])).toEqual([
      [`sha256:${sha256Hex(elsewhere)}`, elsewhere],
      ['r1', elsewhere],
    ])
    expect((await rowOf('r1'))?.status).toBe('processed')
    expect(await audits(id)).toEqual([{ actor: 'tester', via: 'test', action: 'replay', before: { status: 'quarantined' } }])
  })

  test('finds the ID and type that stand in headers', async () => {
    const byHeader = { ...sources.generic, id: { header: 'X-Event-Id' }, type: { header: 'X-Event-Type' } }
    configure({ sources: { ...sources, generic: byHeader }, followUps })
    const body = `{"x":${'['.repeat(300)}${']'.repeat(300)}}`
    await post('/webhooks/generic', body, { ...signed.generic(body), 'x-event-id': 'h1', 'x-event-type': 'paid' })

    expect((await storedEvents(database)).map((event) => [event.status, event.headers])).toEqual([
      ['quarantined', { 'x-event-id': 'h1', 'x-event-type': 'paid' }],
    ])
    expect(await service.replay((await storedEvents(database))[0]?.id ?? '')).toEqual({ outcome: 'still_unusable' })
  })

  test('stays quarantined while a part of it can not be read, and loses nothing', async () => {
    const good = { id: 'EV1', resource_type: 'payments', action: 'paid' }
    const body = JSON.stringify({ events: [good, { resource_type: 'payments', action: 'lost' }] })
    await post('/webhooks/gocardless', body, signed.gocardless(body))
    const quarantined = await rowOf(`sha256:${sha256Hex(body)}`)

    const replayed = await service.replay(quarantined?.id ?? '')

    expect(replayed.outcome).toBe('still_unusable')
    expect((await rowOf(`sha256:${sha256Hex(body)}`))?.status).toBe('quarantined')
    expect((await storedEvents(database)).map((event) => event.status).sort()).toEqual(['ignored', 'quarantined'])
  })

  test('of a source that is gone says so', async () => {
    await postGeneric('ping')
    const { generic: _gone, ...rest } = sources
    configure({ sources: rest })

    expect(await service.replay((await storedEvents(database))[0]?.id ?? '')).toEqual({ outcome: 'unknown_source' })
    expect((await storedEvents(database))[0]?.status).toBe('quarantined')
  })

  test('asked for twice at once reads it once', async () => {
    await postGeneric(elsewhere)
    const id = (await storedEvents(database))[0]?.id ?? ''
    configure({ sources: { ...sources, generic: { ...sources.generic, id: 'ref', type: 'kind' } }, followUps })

    await Promise.all(Array.from({ length: 5 }, () => service.replay(id)))

    expect(await countRows(database)).toEqual({ events: 2, bodies: 0, conflicts: 0, jobs: 1, sends: 0 })
    expect((await rowOf('r1'))?.status).toBe('pending')
    expect(await audits(id)).toHaveLength(1)
  })
})

describe('the replay of an event that a person has to look at first', () => {
  const asksFirst: Partial<Provider> = {
    needsPerson: (event) => ((event as { type?: string }).type === 'paid' ? 'somebody has to look' : undefined),
  }
  beforeEach(() => {
    service.config.current = withProvider(service.config.current, 'generic', asksFirst)
  })
  const paid = '{"id":"e1","type":"paid"}'

  test('lets it through: it waited as quarantined, without a job, and is processed like any other', async () => {
    const answers = [await postGeneric(paid), await postGeneric(paid)]
    expect(await service.drain()).toEqual([])
    const waiting = await rowOf('e1')
    const rows = await countRows(database)

    const replayed = await service.replay(waiting?.id ?? '')
    const twice = await service.replay(waiting?.id ?? '')
    expect(await service.drain()).toEqual([])
    const redelivered = await postGeneric(paid)

    expect(answers.map(({ json }) => json)).toEqual([
      { status: 'quarantined', events: [{ id: 'e1', type: 'paid', status: 'quarantined' }] },
      { status: 'duplicate', events: [{ id: 'e1', type: 'paid', status: 'duplicate' }] },
    ])
    expect(waiting).toMatchObject({ status: 'quarantined', error: 'somebody has to look', type: 'paid', id_basis: 'provider' })
    expect(rows).toEqual({ events: 1, bodies: 0, conflicts: 0, jobs: 0, sends: 0 })
    expect([replayed, twice]).toEqual([{ outcome: 'queued' }, { outcome: 'pending' }])
    expect(await rowOf('e1')).toMatchObject({ status: 'processed', error: null, redeliveries: 2 })
    expect(redelivered.json.status).toBe('duplicate')
    expect(await sendKeys()).toEqual(['paid:e1'])
    expect(await audits(waiting?.id ?? '')).toEqual([
      { actor: 'tester', via: 'test', action: 'replay', before: { status: 'quarantined' } },
    ])
  })

  test('asked for ten times at once makes one job and one audit', async () => {
    await postGeneric(paid)
    const id = (await rowOf('e1'))?.id ?? ''

    const replayed = await Promise.all(Array.from({ length: 10 }, () => service.replay(id)))

    expect(replayed.map(({ outcome }) => outcome).sort()).toEqual([...Array(9).fill('pending'), 'queued'])
    expect((await countRows(database))?.jobs).toBe(1)
    expect(await audits(id)).toHaveLength(1)
  })

  test('that breaks off leaves it waiting', async () => {
    await postGeneric(paid)
    const id = (await rowOf('e1'))?.id ?? ''
    const broken = {
      pool: database.pool,
      recorder: service.recorder,
      config: () => service.config.current,
      isWanted: () => true,
      enqueueEvents: async () => Promise.reject(new Error('the connection broke')),
    }

    await expect(replayEvent(broken, id, 'tester', 'test')).rejects.toThrow('the connection broke')

    expect(await rowOf('e1')).toMatchObject({ status: 'quarantined', error: 'somebody has to look' })
    expect(await audits(id)).toEqual([])
  })

  test('leaves its neighbours in one POST alone, which did not wait', async () => {
    const events = (payload: unknown) => (payload as { events: unknown[] }).events
    service.config.current = withProvider(service.config.current, 'generic', { events })

    const { json } = await postGeneric('{"events":[{"id":"e1","type":"paid"},{"id":"e2","type":"sent"}]}')
    await service.replay((await rowOf('e1'))?.id ?? '')
    expect(await service.drain()).toEqual([])

    expect(json).toEqual({
      status: 'accepted',
      events: [
        { id: 'e1', type: 'paid', status: 'quarantined' },
        { id: 'e2', type: 'sent', status: 'accepted' },
      ],
    })
    expect([(await rowOf('e1'))?.status, (await rowOf('e2'))?.status]).toEqual(['processed', 'ignored'])
    expect(await sendKeys()).toEqual(['paid:e1'])
  })

  test('is a second one, where its bytes had to be read anew first', async () => {
    service.config.current = withProvider(service.config.current, 'generic', { ...asksFirst, id: () => undefined })
    await postGeneric(paid)
    const bytes = (await storedEvents(database))[0]?.id ?? ''
    configure({ sources, followUps })
    service.config.current = withProvider(service.config.current, 'generic', asksFirst)

    const read = await service.replay(bytes)
    const waiting = await rowOf('e1')
    const queued = await service.replay(waiting?.id ?? '')

    expect(read).toEqual({ outcome: 'read', events: [{ id: 'e1', type: 'paid', status: 'quarantined' }] })
    expect(waiting?.status).toBe('quarantined')
    expect(queued).toEqual({ outcome: 'queued' })
    expect([await audits(bytes), await audits(waiting?.id ?? '')].map((list) => list.length)).toEqual([1, 1])
  })
})

describe('the replay of a stored event', () => {
  test('runs the rules that have come since over an ignored one', async () => {
    configure({ sources })
    await postGeneric('{"id":"e1","type":"paid"}')
    const row = await rowOf('e1')
    configure({ sources, followUps })

    const replayed = await service.replay(row?.id ?? '')
    const twice = await service.replay(row?.id ?? '')
    expect(await service.drain()).toEqual([])

    expect([row?.status, replayed, twice]).toEqual(['ignored', { outcome: 'queued' }, { outcome: 'pending' }])
    expect((await rowOf('e1'))?.status).toBe('processed')
    expect(await sendKeys()).toEqual(['paid:e1'])
    expect(await audits(row?.id ?? '')).toEqual([
      { actor: 'tester', via: 'test', action: 'replay', before: { status: 'ignored' } },
    ])
  })

  test('sends nothing twice', async () => {
    await postGeneric('{"id":"e1","type":"paid"}')
    await service.drain()
    const before = service.sandbox.ledger.length

    await service.replay((await rowOf('e1'))?.id ?? '')
    expect(await service.drain()).toEqual([])

    expect((await rowOf('e1'))?.status).toBe('processed')
    expect(service.sandbox.ledger.length).toBe(before)
  })

  test('whose body retention has emptied is refused, and changes nothing', async () => {
    await postGeneric('{"id":"e1","type":"other"}')
    await database.pool.query(`update webhook_events set received_at = now() - interval '91 days'`)
    await emptyOldBodies(database.pool, 90)

    expect(await service.replay((await rowOf('e1'))?.id ?? '')).toEqual({ outcome: 'emptied' })
    expect((await rowOf('e1'))?.status).toBe('ignored')
    expect((await countRows(database))?.jobs).toBe(0)
  })

  test('that does not exist is not found', async () => {
    expect(await service.replay('999999')).toEqual({ outcome: 'not_found' })
  })
})
