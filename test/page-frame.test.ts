import supertest from 'supertest'
import { expect, test } from 'vitest'
import { testDatabase } from './support/database.ts'
import { testPages } from './support/page.ts'

const database = await testDatabase()
const { pool } = database
const { app, get, cookies } = await testPages(database, { sources: {} }, { now: () => new Date('2026-11-29T14:01:00Z') })

const lastSeen = async () =>
  (await pool.query<{ at: Date }>(`select last_seen_at as at from sessions join people on people.id = person where name = 'mia'`))
    .rows[0]?.at

test('a refresh of an open page is no use of the session, a page that a person opens is', async () => {
  await pool.query(`update sessions set last_seen_at = now() - interval '2 hours'`)
  const before = await lastSeen()

  await supertest(app).get('/ops').set('cookie', cookies.operator).set('x-refresh', '1')
  expect(await lastSeen()).toEqual(before)

  await get('/ops')
  expect((await lastSeen())?.getTime()).toBeGreaterThan(before?.getTime() ?? 0)
})

test('while the database is away the page says so, since when, and what goes on, under its header', async () => {
  const away = Object.assign(new Error('connect ECONNREFUSED'), { code: 'ECONNREFUSED' })
  const broken = { query: () => Promise.reject(away) } as unknown as typeof pool
  const { app } = await testPages(
    await testDatabase(),
    { sources: {} },
    { pool: broken, reads: broken, now: () => new Date('2026-11-29T14:01:00Z') },
  )

  const answer = await supertest(app).get('/ops/sends').set('cookie', cookies.operator)

  expect(answer.status).toBe(503)
  expect(answer.text).toContain('Can&#39;t reach the database')
  expect(answer.text).toContain('Since 2026-11-29 14:01:00 UTC')
  expect(answer.text).toContain('Providers get 503 and will redeliver')
  expect(answer.text).toContain('<a href="/ops/sends">Sends</a>')
})
