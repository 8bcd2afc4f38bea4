import type pg from 'pg'
import { expect, test } from 'vitest'
import { testDatabase } from './support/database.ts'
import { insertEvent } from './support/ops-rows.ts'
import { testPages } from './support/page.ts'

const database = await testDatabase()
let gate: () => Promise<void> | undefined = () => undefined
let searches = 0
/** A search of bodies waits here, as a long one does. */
const query = async (config: string | pg.QueryConfig, values?: unknown[]) => {
  const text = typeof config === 'string' ? config : config.text
  if (text.includes('position(part in')) {
    searches += 1
    await gate()
  }
  return database.pool.query(config as string, values)
}
const { get } = await testPages(database, undefined, { reads: { query } as unknown as pg.Pool })
const search = (q: string, who: 'operator' | 'reader' = 'operator') =>
  get(`/ops/search?bodies=1&q=${q}`, who).then((answer) => answer)

test('I19 one search of bodies runs at a time, whoever asks; others are told so and take no connection', async () => {
  await insertEvent(database.pool, 'evt_needle', { body: Buffer.from('{"note":"needle"}'), received_at: new Date() })
  const held = Promise.withResolvers<void>()
  gate = () => held.promise

  const first = search('needle')
  await expect.poll(() => searches).toBe(1)
  const others = await Promise.all(
    Array.from({ length: 12 }, (_, index) => search(`zzz${index}`, index % 2 ? 'reader' : 'operator')),
  )
  held.resolve()

  expect(new Set(others.map(({ status }) => status))).toEqual(new Set([409]))
  expect(others[0]?.text).toContain('Another search of bodies is under way')
  expect(others[0]?.text).toContain('<input type="hidden" name="q" value="zzz0">')
  expect((await first).text).toContain('evt_needle')
  expect(searches).toBe(1)
  expect((await search('needle')).status).toBe(200)
})

test('I19 a search that failed makes room for the next one', async () => {
  gate = () => Promise.reject(Object.assign(new Error('canceling statement due to statement timeout'), { code: '57014' }))

  expect((await search('needle')).text).toContain('That took too long')
  gate = () => undefined
  expect((await search('needle')).status).toBe(200)
})
