import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'

/** A process of the service. */
export interface Part {
  url: string
  pid: number
  stop(): Promise<void>
}

const entry = fileURLToPath(new URL('../bin/oncehook.js', import.meta.url))
const configPath = fileURLToPath(new URL('./follow-ups.config.ts', import.meta.url))

/** Starts one, and is there when it is ready; what it logs goes nowhere. */
export async function startPart(part: 'serve' | 'worker', environment: Record<string, string>): Promise<Part> {
  const child = spawn(process.execPath, [entry, part], {
    env: { ...process.env, PORT: '0', ONCEHOOK_CONFIG: configPath, ...environment },
    stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
  })
  const exited = once(child, 'exit')
  const ready = await Promise.race([once(child, 'message'), exited.then(() => undefined)])
  if (!ready) throw new Error(`${part} ended before it was ready`)
  return {
    url: (ready[0] as { ready: string }).ready, // what serve and worker say to whoever starts them
    pid: child.pid as number,
    async stop() {
      child.kill('SIGTERM')
      await exited
    },
  }
}
