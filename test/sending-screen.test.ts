import { expect, test } from 'vitest'
import { testDatabase } from './support/database.ts'
import { testPages } from './support/page.ts'

const database = await testDatabase()
const { pool } = database
const { get, submit } = await testPages(database)

const control = async () =>
  (await pool.query('select version, held_reason, held_by, matching, matching_reason from sending_control')).rows[0]

test('an operator pauses and resumes sending with a reason, and both are audited', async () => {
  const { version } = await control()

  const paused = await submit('/ops/sending/switch', { version: String(version), paused: 'true', reason: 'looking <into> it' })
  expect(paused.status).toBe(303)
  expect(await control()).toMatchObject({ version: version + 1, held_reason: 'looking <into> it', held_by: 'person:mia' })
  const { text } = await get('/ops/sending', 'reader')
  expect(text).toContain('looking &lt;into&gt; it')
  expect(text).toContain('Changing this needs role operator')

  const resumed = await submit('/ops/sending/switch', { version: String(version + 1), paused: 'false', reason: 'fine' })
  expect(resumed.status).toBe(303)
  expect(await control()).toMatchObject({ held_reason: null })
  const { rows } = await pool.query(`select actor, via, action, reason from audit_log where action like '%sending' order by id`)
  expect(rows).toEqual([
    { actor: 'person:mia', via: 'page', action: 'pause sending', reason: 'looking <into> it' },
    { actor: 'person:mia', via: 'page', action: 'resume sending', reason: 'fine' },
  ])
})

test('I16 who comes second changes nothing, and finds the reason still in its field', async () => {
  const { version } = await control()
  await submit('/ops/sending/matching', { version: String(version), mode: 'suggest', reason: 'first' })

  const second = await submit('/ops/sending/switch', { version: String(version), paused: 'true', reason: 'my own words' })

  expect(second.status).toBe(409)
  expect(second.text).toContain('It changed while you had this open')
  expect(second.text).toContain('value="my own words"')
  expect(await control()).toMatchObject({ version: version + 1, held_reason: null, matching: 'suggest' })
})

test('C-68 without a reason, by a reader, or with a wrong value nothing is switched', async () => {
  const before = await control()
  const version = String(before.version)

  const bare = await submit('/ops/sending/switch', { version, paused: 'true', reason: ' ' })
  const reader = await submit('/ops/sending/switch', { version, paused: 'true', reason: 'x' }, 'reader')
  const wrong = await submit('/ops/sending/matching', { version, mode: 'always', reason: 'x' })

  expect([bare.status, reader.status, wrong.status]).toEqual([400, 403, 400])
  expect(await control()).toEqual(before)
})
