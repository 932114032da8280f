import '../app.css';

import { open } from '../lib/open';
import Settings from './Settings.svelte';

open(Settings);
