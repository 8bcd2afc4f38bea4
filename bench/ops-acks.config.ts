import { defineConfig, env } from 'oncehook'

export default defineConfig({
  sources: { bench: { provider: 'stripe', secrets: env.list('ONCEHOOK_BENCH_SECRETS') } },
})
