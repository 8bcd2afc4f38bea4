import { randomUUID } from 'node:crypto'
import { beforeEach, describe, expect, test } from 'vitest'
import { readConfig, type UserConfig } from '../src/config.ts'
import type { Provider } from '../src/providers/provider.ts'
import { testDatabase } from './support/database.ts'
import { withProvider } from './support/made-up.ts'
import { countRows, emptyTables, listen, onInsert, sha256Hex, signed, sources, storedEvents } from './support/posting.ts'
import { testService } from './support/service.ts'

const database = await testDatabase()
const { pool } = database
const twin = { ...sources.generic }
const userConfig: UserConfig = {
  sources: { ...sources, twin },
  followUps: ['generic', 'twin'].map((source) => ({
    name: source,
    source,
    type: 'failed',
    email: ({ event }) => ({
      key: `failed:${event.mail}`,
      to: 'ada@example.com',
      from_email: 'billing@example.com',
      subject: 'It failed',
      html_body: 'It failed.',
    }),
  })),
}
const service = await testService(database, userConfig)
const { post } = await listen(service.app)

let callsBefore = 0
beforeEach(async () => {
  await emptyTables(database)
  callsBefore = service.sandbox.ledger.length
})
const emails = () => service.sandbox.ledger.slice(callsBefore).length
const conflicts = async () =>
  (await pool.query(`select convert_from(body, 'UTF8') as body, times from webhook_conflicts order by id`)).rows

interface Posted {
  signature: { token?: unknown }
  event: { id: string; mail: string }
}
/** As of a sender that signs a token and not what it says. */
const signsTokenOnly: Partial<Provider> = {
  contentIsSigned: false,
  idIsSigned: true,
  id: (event) => (event as Posted).event.id,
  type: () => 'failed',
  replayKey: (event) => (event as Posted).signature.token,
  volatileFields: ['signature'],
}
const bodyOf = (token: unknown, id: string, mail = 'm1') => JSON.stringify({ signature: { token }, event: { id, mail } })
const deliver = async (body: string, source = 'generic') => {
  const { status, json } = await post(`/webhooks/${source}`, body, signed.generic(body))
  return [status, ...(json.events ?? []).map((event) => event.status)]
}

describe('what a sender signs once only', () => {
  beforeEach(() => {
    service.config.current = withProvider(withProvider(readConfig(userConfig), 'generic', signsTokenOnly), 'twin', signsTokenOnly)
  })

  test('I3 seen again under a made-up ID is no event: kept as a conflict, nothing is sent', async () => {
    const forged = bodyOf('t1', 'e2', 'm2')

    const answers = [await deliver(bodyOf('t1', 'e1')), await deliver(forged), await deliver(forged)]
    expect(await service.drain()).toEqual([])

    expect(answers).toEqual([
      [200, 'accepted'],
      [200, 'duplicate'],
      [200, 'duplicate'],
    ])
    expect((await storedEvents(database)).map(({ event_id, redeliveries }) => [event_id, redeliveries])).toEqual([['e1', 2]])
    expect(await conflicts()).toEqual([{ body: forged, times: 2 }])
    expect((await pool.query(`select from pgboss.job where name = 'process-event'`)).rowCount).toBe(1)
    expect(emails()).toBe(1)
  })

  test('I3 seen fifty times at once under as many IDs is one event and one email', async () => {
    const bodies = Array.from({ length: 50 }, (_, index) => bodyOf('t1', `e${index}`, `m${index}`))

    const answers = await Promise.all(bodies.map((body) => deliver(body)))
    expect(await service.drain()).toEqual([])

    expect(answers.map(([, status]) => status).sort()).toEqual(['accepted', ...Array(49).fill('duplicate')])
    const [event] = await storedEvents(database)
    expect(event?.redeliveries).toBe(49)
    expect(await countRows(database)).toMatchObject({ events: 1, conflicts: 10, sends: 1 })
    const kept = [event?.body?.toString(), ...(await conflicts()).map(({ body }) => body)]
    expect(new Set(kept).size).toBe(11)
    expect(bodies).toEqual(expect.arrayContaining(kept))
    expect(emails()).toBe(1)
  })

  describe('under no ID that could be read', () => {
    const idless = (mail: string, token = 't1') => JSON.stringify({ signature: { token }, event: { mail } })
    const rows = async () => (await storedEvents(database)).map((row) => [row.event_id, row.status, row.redeliveries])

    test('I3 is quarantined once, however often it comes with other content', async () => {
      const answers = [await deliver(idless('m1')), await deliver(idless('m2')), await deliver(idless('m2'))]

      expect(answers.map(([, status]) => status)).toEqual(['quarantined', 'duplicate', 'duplicate'])
      expect(await rows()).toEqual([[`sha256:${sha256Hex(idless('m1'))}`, 'quarantined', 2]])
      expect(await conflicts()).toEqual([{ body: idless('m2'), times: 2 }])
    })

    test('I3 is quarantined once of fifty at once', async () => {
      const answers = await Promise.all(Array.from({ length: 50 }, (_, index) => deliver(idless(`m${index}`))))

      expect(answers.map(([, status]) => status).sort()).toEqual([...Array(49).fill('duplicate'), 'quarantined'])
      expect(await countRows(database)).toMatchObject({ events: 1, conflicts: 10 })
    })

    test('I3 is a conflict of the event that the token was used for', async () => {
      await deliver(bodyOf('t1', 'e1'))

      expect(await deliver(idless('m2'))).toEqual([200, 'duplicate'])
      expect(await rows()).toEqual([['e1', 'pending', 1]])
      expect(await conflicts()).toEqual([{ body: idless('m2'), times: 1 }])
    })

    test('I3 becomes one event when it can be read, and goes on holding its token', async () => {
      await deliver(idless('m1'))
      const [quarantined] = await storedEvents(database)
      service.config.current = withProvider(service.config.current, 'generic', {
        ...signsTokenOnly,
        id: (event) => (event as Posted).event.id ?? 'derived',
      })

      const read = [await service.replay(quarantined?.id ?? ''), await service.replay(quarantined?.id ?? '')]
      const again = [await deliver(idless('m1')), await deliver(bodyOf('t1', 'e2', 'm2'))]
      expect(await service.drain()).toEqual([])

      expect(read.map((answer) => 'events' in answer && answer.events.map(({ id, status }) => [id, status]))).toEqual([
        [['derived', 'accepted']],
        [['derived', 'duplicate']],
      ])
      expect(again).toEqual(Array(2).fill([200, 'duplicate']))
      expect((await storedEvents(database)).map((row) => [row.event_id, row.status])).toEqual([
        [`sha256:${sha256Hex(idless('m1'))}`, 'processed'],
        ['derived', 'processed'],
      ])
      expect(emails()).toBe(1)
    })
  })

  test('under an ID that is held too counts for the event of that ID', async () => {
    await deliver(bodyOf('t1', 'e1'))
    await deliver(bodyOf('t2', 'e2'))

    expect(await deliver(bodyOf('t1', 'e2', 'm3'))).toEqual([200, 'duplicate'])

    expect((await storedEvents(database)).map(({ event_id, redeliveries }) => [event_id, redeliveries])).toEqual([
      ['e1', 0],
      ['e2', 1],
    ])
    const { rows } = await pool.query('select event_id from webhook_conflicts join webhook_events events on events.id = event')
    expect(rows).toEqual([{ event_id: 'e2' }])
  })

  test('is no bar to what is honest: a redelivery, one that is signed anew, another token, another source', async () => {
    const answers = [
      await deliver(bodyOf('t1', 'e1')),
      await deliver(bodyOf('t1', 'e1')),
      await deliver(bodyOf('t2', 'e1')),
      await deliver(bodyOf('t3', 'e3', 'm3')),
      await deliver(bodyOf('t1', 'e1', 'm4'), 'twin'),
    ]

    expect(answers.map(([, status]) => status)).toEqual(['accepted', 'duplicate', 'duplicate', 'accepted', 'accepted'])
    expect(await conflicts()).toEqual([])
    expect((await storedEvents(database)).map((row) => [row.redeliveries, row.benign_variants])).toEqual([
      [2, 1],
      [0, 0],
      [0, 0],
    ])
  })

  test.each([[undefined], [' '], ['x'.repeat(256)], [{}]])('that is not usable (%s) bars nothing', async (token) => {
    expect([await deliver(bodyOf(token, 'e1')), await deliver(bodyOf(token, 'e2'))]).toEqual([
      [200, 'accepted'],
      [200, 'accepted'],
    ])
  })

  test('is kept as a conflict once the storage that failed on it is back', async () => {
    await deliver(bodyOf('t1', 'e1'))
    await pool.query(`alter table webhook_conflicts add constraint refused check (body_sha256 is null)`)
    const forged = bodyOf('t1', 'e2', 'm2')
    const refused = await deliver(forged)
    await pool.query('alter table webhook_conflicts drop constraint refused')

    const again = await deliver(forged)

    expect([refused, again]).toEqual([[503], [200, 'duplicate']])
    expect(await conflicts()).toEqual([{ body: forged, times: 1 }])
    expect((await storedEvents(database)).map(({ event_id }) => event_id)).toEqual(['e1'])
  })
})

describe('a sender whose every delivery is an event', () => {
  /** As of one that names an object and nothing else. */
  const namesObjectOnly: Partial<Provider> = {
    contentIsSigned: false,
    idIsSigned: false,
    idBasis: 'delivery',
    id: (payload) => (payload as { id?: string }).id,
    type: () => 'failed',
  }
  const confirm = async ({ id }: { id: string }) => ({ event: { mail: id } })
  const config = (changes: Partial<Provider> = {}) =>
    withProvider(
      readConfig({ ...userConfig, sources: { ...userConfig.sources, generic: { ...sources.generic, confirm } } }),
      'generic',
      { ...namesObjectOnly, ...changes },
    )
  beforeEach(() => {
    service.config.current = config()
  })
  const body = '{"id":"tr_1"}'
  const delivered = /^tr_1:[0-9a-f-]{36}$/

  test('has two events of one POST that comes twice, and one email by its key', async () => {
    const answers = [await deliver(body), await deliver(body)]
    expect(await service.drain()).toEqual([])

    expect(answers).toEqual(Array(2).fill([200, 'accepted']))
    const rows = await storedEvents(database)
    expect(rows.map(({ event_id, id_basis, status, redeliveries }) => [event_id, id_basis, status, redeliveries])).toEqual(
      Array(2).fill([expect.stringMatching(delivered), 'delivery', 'processed', 0]),
    )
    expect(rows[0]?.event_id).not.toBe(rows[1]?.event_id)
    expect(emails()).toBe(1)
  })

  test('has ten events of ten deliveries at once, and one email', async () => {
    const answers = await Promise.all(Array.from({ length: 10 }, () => deliver(body)))
    const ids = (await storedEvents(database)).map(({ id }) => id)

    await Promise.all(ids.map((id) => service.process(id)))
    expect(await service.drain()).toEqual([])

    expect(answers).toEqual(Array(10).fill([200, 'accepted']))
    expect(await countRows(database)).toMatchObject({ events: 10, conflicts: 0, sends: 1 })
    expect(emails()).toBe(1)
  })

  test('has nothing of a delivery that was not recorded', async () => {
    const { remove } = await onInsert(database, `raise exception 'refused by the test';`)
    const refused = await deliver(body)
    await remove()

    expect([refused, await deliver(body)]).toEqual([[503], [200, 'accepted']])
    expect(await countRows(database)).toMatchObject({ events: 1 })
  })

  test('has one event of an unreadable delivery, however often it is read anew', async () => {
    service.config.current = config({ id: () => undefined })
    expect(await deliver(body)).toEqual([200, 'quarantined'])
    const id = (await storedEvents(database))[0]?.id ?? ''
    service.config.current = config()

    await Promise.all(Array.from({ length: 5 }, () => service.replay(id)))
    const again = await service.replay(id)

    expect(again).toEqual({ outcome: 'read', events: [{ id: `tr_1:event-${id}`, type: 'failed', status: 'duplicate' }] })
    expect((await storedEvents(database)).map((row) => [row.event_id, row.status])).toEqual([
      [`sha256:${sha256Hex(body)}`, 'processed'],
      [`tr_1:event-${id}`, 'pending'],
    ])
  })

  test('keeps its long IDs apart', async () => {
    const long = JSON.stringify({ id: `${randomUUID()}${'é'.repeat(476)}` })

    expect([await deliver(long), await deliver(long)]).toEqual(Array(2).fill([200, 'accepted']))
    expect(new Set((await storedEvents(database)).map(({ event_id }) => event_id)).size).toBe(2)
  })
})
