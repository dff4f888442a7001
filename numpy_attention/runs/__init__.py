"""Part IV, continued. What a long run needs around the loop, and a way back after a kill.

    trainer -> checkpoint -> parallel -> mpi                  Chapters 29 to 32
    task, config, restore                                     what is learned, with which settings; a run taken up again
    lock, log, progress, plot, signals, memory, diagnose      one small tool each

One step: `Trainer.one_step` -> `parallel.loss_and_gradients` -> `ranks.total` -> `training.loop.take_step`.
"""
